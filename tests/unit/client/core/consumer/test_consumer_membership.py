"""Members of the consumer protocol on the twin: heartbeats, assignments, fences, commits, ends."""

from __future__ import annotations

import re

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.consumer_group import ConsumerGroupCluster
from tests.client_twin.loop import TwinLoop
from tests.client_twin.member import TwinMember

from millstream.client.core.consumer.consumer_membership import ConsumerMembership
from millstream.client.core.consumer.errors import CommitFailedError, FencedInstanceIdError
from millstream.client.core.consumer.member_machine import MemberState
from millstream.client.core.consumer.record import OffsetAndMetadata, SubscriptionPattern
from millstream.client.core.consumer.settings import ConsumerSettings, check_settings
from millstream.client.core.settings import read_settings
from millstream.client.errors import BrokerError, ClosedError, UnsupportedVersionError
from millstream.model.deferred import spawn
from millstream.model.errors import ConfigError, ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.protocol.messages.metadata import MetadataRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequest

T = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def cluster() -> ConsumerGroupCluster:
    made = ConsumerGroupCluster(TwinLoop(3), [1, 2])
    made.create_topic("t", 4)
    for number in range(4):
        made.fill("t", number, 10)
    return made


def join(cluster: ConsumerGroupCluster, name: str = "m", **settings: object) -> TwinMember:
    chosen: dict[str, object] = {"group_protocol": "consumer", "auto_commit_interval_ms": 300}
    member = TwinMember(cluster, name, **{**chosen, **settings})
    member.subscribe(["t"])
    return member


def membership(member: TwinMember) -> ConsumerMembership:
    assert isinstance(member.core._membership, ConsumerMembership)
    return member.core._membership


def settle(*members: TwinMember, for_ms: float = 4_000) -> None:
    """Let the members poll for a while."""
    loop = members[0].loop
    end = loop.now_ms() + for_ms
    while loop.now_ms() < end:
        for each in members:
            loop.run(each.poll(50))


def refuse(cluster: ConsumerGroupCluster, error: ErrorCode, times: int = 1) -> list[int]:
    """Refuse the next heartbeats; return how many were, filled as they come."""
    refused: list[int] = []

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ConsumerGroupHeartbeatRequest) or len(refused) == times:
            return None
        refused.append(request.member_epoch)
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
        )

    cluster.hooks.append(hook)
    return refused


def bump(cluster: ConsumerGroupCluster, member: TwinMember) -> int:
    """Give the member another epoch, the answer with which is still on its way; return it."""
    row = cluster.members[membership(member).member_id]
    before = row.epoch
    cluster.group_epoch += 1
    cluster.after = lambda broker, connection, request: (
        200.0 if isinstance(request, ConsumerGroupHeartbeatRequest) else 0.0
    )
    while row.epoch == before:
        member.loop.advance(10)
    assert member.core.group.generation_id == before
    return row.epoch


def test_the_first_heartbeat_says_everything_and_later_ones_what_has_changed(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster, client_rack="r1", group_remote_assignor="range")
    settle(member)
    first, acknowledgement, *others = cluster.heartbeats
    assert first.member_epoch == 0
    assert first.member_id == membership(member).member_id
    assert len(first.member_id) == 22
    assert first.subscribed_topic_names == ["t"]
    assert first.topic_partitions == []
    assert first.rebalance_timeout_ms == 300_000
    assert (first.rack_id, first.server_assignor) == ("r1", "range")
    assert acknowledgement.topic_partitions is not None
    assert sorted(acknowledgement.topic_partitions[0].partitions) == [0, 1, 2, 3]
    assert len(others) in (6, 7, 8), "one each 500 ms, as the answers ask for"
    for each in (acknowledgement, *others):
        assert each.subscribed_topic_names is None
        assert each.rebalance_timeout_ms == -1
        assert (each.rack_id, each.server_assignor) == (None, None)
    assert all(each.topic_partitions is None for each in others)
    assert member.events == [("assigned", frozenset(T))]
    assert len(member.seen) == 40


def test_everything_is_said_again_after_an_error(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster)
    settle(member)
    refuse(cluster, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    before = len(cluster.heartbeats)
    settle(member, for_ms=1_000)
    again = cluster.heartbeats[before]
    assert again.member_epoch == membership(member).machine.epoch
    assert again.subscribed_topic_names == ["t"]
    assert again.topic_partitions is not None
    assert member.events == [("assigned", frozenset(T))]


def test_a_partition_moves_after_its_owner_has_given_it_up(cluster: ConsumerGroupCluster) -> None:
    first = join(cluster, "first")
    settle(first)
    second = join(cluster, "second")
    # The first member does not poll: it keeps everything, and the second gets nothing.
    settle(second)
    assert second.owned == frozenset()
    settle(first, second)
    assert len(first.owned) == len(second.owned) == 2
    assert first.owned | second.owned == frozenset(T)
    assert [kind for kind, _ in first.events] == ["assigned", "revoked", "assigned"]
    assert first.events[1][1] == second.owned
    committed = {each.place: each.offset for each in cluster.commits}
    assert {place: committed[place] for place in second.owned} == dict.fromkeys(second.owned, 10)
    assert sorted(first.seen + second.seen) == [(place, n) for place in T for n in range(10)]


def test_a_member_keeps_reading_what_stays_with_it(cluster: ConsumerGroupCluster) -> None:
    first = join(cluster, "first")
    settle(first)
    second = join(cluster, "second")
    second.loop.run(second.poll(2_000))
    first.loop.run(first.poll(50))
    staying = [place for place in first.core.subscription.partitions if place not in second.owned]
    for place in staying[:1]:
        cluster.fill("t", place.partition, 5)
    settle(first, second)
    assert {place for place, offset in first.seen if offset >= 10} == set(staying[:1])


def test_a_fenced_member_loses_everything_and_joins_again_by_itself(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster)
    settle(member)
    was = membership(member).member_id
    cluster.remove(was)
    settle(member)
    assert [kind for kind, _ in member.events] == ["assigned", "lost", "assigned"]
    assert member.owned == frozenset(T)
    assert membership(member).member_id == was, "the id belongs to the consumer"
    joins = [each for each in cluster.heartbeats if each.member_epoch == 0]
    assert len(joins) == 2
    assert joins[1].topic_partitions == []


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_what_a_fenced_member_has_read_is_not_committed_by_it(
    cluster: ConsumerGroupCluster, error: ErrorCode
) -> None:
    member = join(cluster, auto_commit_interval_ms=100_000)
    settle(member)
    refuse(cluster, error)
    member.loop.advance(1_000)
    for number in range(4):
        cluster.fill("t", number, 5)
    seen = len(member.seen)
    member.loop.run(member.poll(0))
    assert len(member.seen) == seen, "nothing is delivered of what is lost"
    settle(member)
    assert not any(each.offset == 15 for each in cluster.commits)
    assert [kind for kind, _ in member.events] == ["assigned", "lost", "assigned"]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_joining_goes_on_after_what_passes(cluster: ConsumerGroupCluster, error: ErrorCode) -> None:
    refused = refuse(cluster, error, times=3)
    member = join(cluster)
    settle(member)
    assert refused == [0, 0, 0]
    assert member.owned == frozenset(T)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ],
)
def test_an_error_that_no_retry_mends_ends_the_membership(
    cluster: ConsumerGroupCluster, error: ErrorCode
) -> None:
    member = join(cluster)
    settle(member)
    refuse(cluster, error)
    with pytest.raises(BrokerError) as raised:
        settle(member)
    assert raised.value.error is error
    sent = len(cluster.heartbeats)
    for _ in range(3):
        with pytest.raises(BrokerError):
            member.loop.run(member.poll(1_000))
    assert len(cluster.heartbeats) == sent
    assert membership(member).machine.state is MemberState.FATAL


def test_brokers_without_the_protocol_are_named(cluster: ConsumerGroupCluster) -> None:
    for broker in cluster.brokers.values():
        del broker.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    member = join(cluster)
    with pytest.raises(UnsupportedVersionError, match="to classic until"):
        settle(member)


def test_who_polls_too_seldom_leaves_and_comes_back(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster, max_poll_interval_ms=5_000)
    settle(member)
    member.loop.advance(8_000)
    assert cluster.members == {}
    assert cluster.heartbeats[-1].member_epoch == -1
    assert member.events == [("assigned", frozenset(T))], "the listener is called in polls only"
    settle(member)
    assert [kind for kind, _ in member.events] == ["assigned", "lost", "assigned"]
    assert len(cluster.members) == 1


def test_who_waits_in_a_poll_does_poll(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster, max_poll_interval_ms=2_000)
    settle(member)
    member.loop.run(member.poll(20_000))
    assert all(each.member_epoch >= 0 for each in cluster.heartbeats)


def test_closing_commits_tells_and_leaves(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster, auto_commit_interval_ms=100_000)
    settle(member)
    member.loop.run(member.close())
    assert cluster.members == {}
    assert cluster.offsets == dict.fromkeys(T, 10)
    assert [kind for kind, _ in member.events] == ["assigned", "revoked"]
    assert cluster.heartbeats[-1].member_epoch == -1


def test_heartbeats_go_on_while_the_listener_hears_of_the_end(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster)
    settle(member)
    before = len(cluster.heartbeats)
    member.loop.run(member.close(pause_ms=2_000))
    assert len(cluster.heartbeats) > before + 2
    assert cluster.heartbeats[-1].member_epoch == -1


def test_closing_before_the_first_poll_says_nothing_to_the_group(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster)
    member.loop.run(member.close())
    assert cluster.heartbeats == []


def test_a_static_member_comes_back_to_its_partitions(cluster: ConsumerGroupCluster) -> None:
    first = join(cluster, "first", group_instance_id="one")
    second = join(cluster, "second", group_instance_id="two")
    settle(first, second)
    had = first.owned
    assert len(had) == 2
    first.loop.run(first.close())
    assert cluster.heartbeats[-1].member_epoch == -2 or any(
        each.member_epoch == -2 for each in cluster.heartbeats
    )
    assert not any(each.member_epoch == -1 for each in cluster.heartbeats)
    again = join(cluster, "again", group_instance_id="one")
    settle(again, second)
    assert again.owned == had
    assert second.owned == frozenset(T) - had
    assert [kind for kind, _ in second.events].count("revoked") <= 1


def test_a_second_consumer_under_one_instance_id_is_refused(cluster: ConsumerGroupCluster) -> None:
    first = join(cluster, "first", group_instance_id="one")
    settle(first)
    second = join(cluster, "second", group_instance_id="one")
    with pytest.raises(BrokerError) as raised:
        settle(second)
    assert raised.value.error is ErrorCode.UNRELEASED_INSTANCE_ID
    settle(first)
    assert first.owned == frozenset(T)


def test_a_fenced_instance_is_told_for_good(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster, group_instance_id="one")
    settle(member)
    refuse(cluster, ErrorCode.FENCED_INSTANCE_ID)
    with pytest.raises(FencedInstanceIdError):
        settle(member)
    with pytest.raises(FencedInstanceIdError):
        member.loop.run(member.poll(0))


def test_another_subscription_is_sent_at_once(cluster: ConsumerGroupCluster) -> None:
    cluster.create_topic("u", 1)
    cluster.interval_ms = 3_000
    member = join(cluster)
    settle(member)
    member.subscribe(["u"])
    settle(member, for_ms=1_000)
    assert member.owned == {TopicPartition("u", 0)}
    names = [each.subscribed_topic_names for each in cluster.heartbeats]
    assert [each for each in names if each is not None] == [["t"], ["u"]]


def test_unsubscribing_leaves_and_another_subscription_joins_anew(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster)
    settle(member)
    unsubscribed = spawn(member.core.unsubscribe())
    call = member.loop.run(member.core.user.serve(unsubscribed))
    assert call is not None
    call.function()
    call.done.complete(None)
    member.loop.advance(100)
    assert cluster.members == {}
    assert cluster.heartbeats[-1].member_epoch == -1
    member.loop.advance(3_000)
    assert cluster.heartbeats[-1].member_epoch == -1
    member.subscribe(["t"])
    settle(member)
    assert member.owned == frozenset(T)


def test_a_pattern_of_python_is_matched_here(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster)
    member.core.subscribe(re.compile("t.*"), member)
    settle(member)
    assert member.owned == frozenset(T)
    cluster.create_topic("tt", 1)
    member.core.metadata.request_update()
    settle(member)
    assert member.owned == {*T, TopicPartition("tt", 0)}
    assert cluster.heartbeats[0].subscribed_topic_regex is None
    names = [each.subscribed_topic_names for each in cluster.heartbeats]
    assert [each for each in names if each is not None][-1] == ["t", "tt"]


def test_an_expression_is_matched_by_the_coordinator(cluster: ConsumerGroupCluster) -> None:
    cluster.create_topic("other", 1)
    member = join(cluster)
    member.core.subscribe(SubscriptionPattern("t+"), member)
    settle(member)
    assert cluster.heartbeats[0].subscribed_topic_regex == "t+"
    assert cluster.heartbeats[0].subscribed_topic_names == []
    assert member.owned == frozenset(T)
    assert len(member.seen) == 40
    cluster.create_topic("ttt", 1)
    cluster.fill("ttt", 0, 3)
    settle(member)
    assert member.owned == {*T, TopicPartition("ttt", 0)}
    assert member.core.subscription.topics == {"t", "ttt"}
    everything = [
        each
        for broker in cluster.brokers.values()
        for each in broker.requests
        if isinstance(each, MetadataRequest) and each.topics is None
    ]
    assert everything == [], "no list of all topics is asked for"
    member.core.subscribe(["t"], member)
    settle(member)
    assert member.owned == frozenset(T)
    assert cluster.members[membership(member).member_id].expression == ""


def test_an_expression_needs_version_1(cluster: ConsumerGroupCluster) -> None:
    for broker in cluster.brokers.values():
        broker.versions[ApiKey.CONSUMER_GROUP_HEARTBEAT] = (0, 0)
    member = join(cluster)
    settle(member)
    assert member.owned == frozenset(T)
    member.core.subscribe(SubscriptionPattern("t+"), member)
    with pytest.raises(UnsupportedVersionError, match="SubscriptionPattern"):
        settle(member)


def test_a_commit_under_an_older_epoch_is_sent_again(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster, enable_auto_commit=False)
    settle(member)
    epoch = bump(cluster, member)
    member.loop.run(member.core.commit({T[0]: OffsetAndMetadata(5)}, 5_000))
    assert cluster.offsets == {T[0]: 5}
    assert cluster.commits[-1].generation == epoch
    assert member.core.group.generation_id == epoch
    assert member.core.group.member_id == membership(member).member_id


def test_a_member_that_was_removed_cannot_commit(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster, enable_auto_commit=False)
    settle(member)
    cluster.remove(membership(member).member_id)
    with pytest.raises(CommitFailedError):
        member.loop.run(member.core.commit({T[0]: OffsetAndMetadata(5)}, 5_000))
    settle(member)
    assert [kind for kind, _ in member.events] == ["assigned", "lost", "assigned"]
    assert cluster.offsets == {}


def test_committed_offsets_are_asked_for_with_the_newest_epoch(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster, enable_auto_commit=False)
    settle(member)
    bump(cluster, member)
    found = member.loop.run(member.core.committed([T[0]], 5_000))
    assert found == {T[0]: None}
    fetches = [
        each
        for broker in cluster.brokers.values()
        for each in broker.requests
        if isinstance(each, OffsetFetchRequest)
    ]
    assert fetches[-1].groups[0].member_epoch == member.core.group.generation_id


def test_who_was_refused_under_an_older_epoch_does_not_wait_for_another_one(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster)
    settle(member)
    group = member.core.group
    older = group._replace(generation_id=group.generation_id - 1)
    stale = BrokerError(ErrorCode.STALE_MEMBER_EPOCH, "a fetch of offsets")
    waiting = spawn(membership(member).after_refused_fetch(older, stale))
    assert waiting.done


def test_who_was_refused_waits_for_a_heartbeat_and_a_little_where_that_changes_nothing(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster, retry_backoff_ms=100)
    settle(member)
    said = len(cluster.heartbeats)
    stale = BrokerError(ErrorCode.STALE_MEMBER_EPOCH, "a fetch of offsets")
    waiting = spawn(membership(member).after_refused_fetch(member.core.group, stale))
    member.loop.advance(90)
    assert (len(cluster.heartbeats), waiting.done) == (said + 1, False)
    member.loop.advance(50)
    assert waiting.done
    waiting.result()


def test_who_was_refused_goes_on_at_once_with_the_newer_epoch(
    cluster: ConsumerGroupCluster,
) -> None:
    member = join(cluster, retry_backoff_ms=10_000)
    settle(member)
    before = member.core.group
    cluster.group_epoch += 1
    stale = BrokerError(ErrorCode.STALE_MEMBER_EPOCH, "a fetch of offsets")
    waiting = spawn(membership(member).after_refused_fetch(before, stale))
    member.loop.advance(400)
    assert member.core.group != before
    assert waiting.done


def test_who_was_refused_hears_that_the_consumer_is_closed(cluster: ConsumerGroupCluster) -> None:
    member = join(cluster)
    settle(member)
    stale = BrokerError(ErrorCode.STALE_MEMBER_EPOCH, "a fetch of offsets")
    waiting = spawn(membership(member).after_refused_fetch(member.core.group, stale))
    membership(member).close()
    member.loop.advance(10)
    with pytest.raises(ClosedError):
        waiting.result()


def test_an_id_that_the_coordinator_gives_is_used_from_then_on(
    cluster: ConsumerGroupCluster,
) -> None:
    said: list[str] = []

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ConsumerGroupHeartbeatRequest):
            return None
        said.append(request.member_id)
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id="given" if len(said) == 1 else None,
            member_epoch=1,
            heartbeat_interval_ms=500,
        )

    cluster.hooks.append(hook)
    member = join(cluster)
    settle(member, for_ms=2_000)
    assert said[0] != "given"
    assert set(said[1:]) == {"given"}


def test_an_assigned_topic_without_a_name_waits_and_the_others_do_not(
    cluster: ConsumerGroupCluster,
) -> None:
    ghost = cluster.create_topic("u", 1)
    member = TwinMember(cluster, group_protocol="consumer")
    member.core.subscribe(SubscriptionPattern("t|u"), member)
    cluster.topics["u"], hidden = ghost, cluster.handlers[MetadataRequest]

    def without_u(broker: TwinBroker, request: Request) -> Response | None:
        kept = cluster.topics.pop("u")
        try:
            return hidden(broker, request)
        finally:
            cluster.topics["u"] = kept

    cluster.handlers[MetadataRequest] = without_u
    settle(member)
    assert member.owned == frozenset(T)
    beats = len(cluster.heartbeats)
    settle(member)
    assert len(cluster.heartbeats) - beats < 12, "an unknown name is no reason to hurry"
    cluster.handlers[MetadataRequest] = hidden
    settle(member)
    assert member.owned == {*T, TopicPartition("u", 0)}


def test_a_topic_that_was_deleted_is_given_up_at_once(cluster: ConsumerGroupCluster) -> None:
    cluster.create_topic("u", 1)
    cluster.fill("u", 0, 5)
    member = join(cluster, auto_commit_interval_ms=100_000)
    member.subscribe(["t", "u"])
    settle(member)
    assert member.owned == {*T, TopicPartition("u", 0)}
    cluster.delete_topic("u")
    settle(member, for_ms=2_000)
    assert member.owned == frozenset(T)


def test_a_lost_answer_is_asked_for_again(cluster: ConsumerGroupCluster) -> None:
    first = join(cluster, "first", request_timeout_ms=1_000)
    settle(first)
    second = join(cluster, "second")
    dropped: list[int] = []

    def lose(broker: TwinBroker, connection: object, request: Request) -> float | None:
        mine = membership(first).member_id
        if (
            isinstance(request, ConsumerGroupHeartbeatRequest)
            and request.member_id == mine
            and request.topic_partitions is not None
            and not dropped
        ):
            dropped.append(request.member_epoch)
            return None
        return 0.0

    cluster.after = lose
    settle(first, second, for_ms=8_000)
    assert dropped
    assert len(first.owned) == len(second.owned) == 2
    assert "lost" not in [kind for kind, _ in first.events]


@pytest.mark.parametrize(
    "setting",
    [
        {"session_timeout_ms": 45_000},
        {"heartbeat_interval_ms": 3_000},
        {"partition_assignment_strategy": "range"},
    ],
)
def test_settings_that_the_coordinator_decides_are_refused(setting: dict[str, object]) -> None:
    given = {"bootstrap_servers": "h:1", "group_id": "g", "group_protocol": "CONSUMER", **setting}
    (name,) = setting
    with pytest.raises(ConfigError, match=name.replace("_", ".")):
        check_settings(read_settings(ConsumerSettings, {}, given))
    check_settings(read_settings(ConsumerSettings, {}, {**given, "group_protocol": "classic"}))


def test_an_assignor_of_the_coordinator_needs_the_consumer_protocol() -> None:
    given = {"bootstrap_servers": "h:1", "group_id": "g", "group_remote_assignor": "uniform"}
    with pytest.raises(ConfigError, match=r"group\.remote\.assignor"):
        check_settings(read_settings(ConsumerSettings, {}, given))
    check_settings(read_settings(ConsumerSettings, {}, {**given, "group_protocol": "consumer"}))


def test_an_expression_needs_the_consumer_protocol(cluster: ConsumerGroupCluster) -> None:
    member = TwinMember(cluster)
    with pytest.raises(ConfigError, match=r"group\.protocol=consumer"):
        member.core.subscribe(SubscriptionPattern("t"), member)
    assert not member.core.subscription.uses_group


@pytest.mark.parametrize("is_join", [True, False])
@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_coordinator_that_fences_every_member_is_not_flooded(
    cluster: ConsumerGroupCluster, error: ErrorCode, *, is_join: bool
) -> None:
    """Whether it refuses to let the member join, or knows it no longer as soon as it has."""
    member = join(cluster)
    asked: list[int] = []
    refusing = [True]

    def refuse(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, ConsumerGroupHeartbeatRequest) or not refusing:
            return None
        asked.append(request.member_epoch)
        if (request.member_epoch == 0) is not is_join:
            return None
        return ConsumerGroupHeartbeatResponse(
            error_code=error.code, member_epoch=0, heartbeat_interval_ms=0
        )

    cluster.hooks.append(refuse)
    settle(member, for_ms=10_000)
    assert 5 <= len(asked) <= 60
    refusing.clear()
    settle(member, for_ms=4_000)
    assert len(set(member.seen)) == 40
