"""One member and its group on the twin: commits, listeners, static members, patterns, deadlines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pytest
from tests.client_twin.cluster import TwinBroker
from tests.client_twin.loop import TwinLoop
from tests.client_twin.member import TwinMember
from tests.client_twin.readers import ReaderCluster

from millstream.client.core.consumer.assignors.assignor import (
    Assignments,
    GroupMember,
    TopicRacks,
)
from millstream.client.core.consumer.assignors.range import RangeAssignor
from millstream.client.core.consumer.classic_membership import ClassicMembership
from millstream.client.core.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitError,
)
from millstream.client.core.consumer.record import OffsetAndMetadata
from millstream.client.errors import BrokerError, ClosedError, ConnectionFailedError, TimedOutError
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.heartbeat import HeartbeatRequest
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from millstream.protocol.messages.leave_group import LeaveGroupRequest
from millstream.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

T = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def cluster() -> ReaderCluster:
    made = ReaderCluster(TwinLoop(3), [1, 2])
    made.create_topic("t", 4)
    for number in range(4):
        made.fill("t", number, 10)
    return made


def settle(*members: TwinMember, for_ms: float = 8_000) -> None:
    """Let the members poll for a while."""
    loop = members[0].loop
    end = loop.now_ms() + for_ms
    while loop.now_ms() < end:
        for each in members:
            loop.run(each.poll(50))


def sent(cluster: ReaderCluster, kind: type[Request]) -> list[Request]:
    return [each for b in cluster.brokers.values() for each in b.requests if type(each) is kind]


def refuse_once(cluster: ReaderCluster, kind: type[Request], response: Response) -> None:
    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if isinstance(request, kind):
            cluster.hooks.remove(hook)
            return response
        return None

    cluster.hooks.append(hook)


def refused_commit(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=error.code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def test_positions_are_committed_by_themselves_in_polls_only(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, auto_commit_interval_ms=1_000)
    member.subscribe(["t"])
    settle(member, for_ms=2_000)
    before = len(cluster.commits)
    member.loop.advance(5_000)
    assert len(cluster.commits) == before
    settle(member, for_ms=500)
    assert {each.place: each.offset for each in cluster.commits} == dict.fromkeys(T, 10)


def test_a_commit_by_hand_with_metadata(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member)
    given = {T[1]: OffsetAndMetadata(4, "half way", 0)}
    member.loop.run(member.core.commit(given, 5_000))
    found = member.loop.run(member.core.committed(T[:2], 5_000))
    assert found == {T[0]: None, T[1]: OffsetAndMetadata(4, "half way", 0)}
    member.loop.run(member.close())
    assert [each.offset for each in cluster.commits] == [4]


def test_commits_without_waiting_are_told_in_a_later_poll(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member)
    heard: list[tuple[int, Exception | None]] = []
    member.core.commit_async(
        {T[0]: OffsetAndMetadata(1)}, lambda o, e: heard.append((o[T[0]].offset, e))
    )
    member.core.commit_async(
        {T[0]: OffsetAndMetadata(2)}, lambda o, e: heard.append((o[T[0]].offset, e))
    )
    member.loop.advance(500)
    assert heard == []
    settle(member, for_ms=300)
    assert heard == [(1, None), (2, None)]
    cluster.brokers[1].stop()
    member.core.commit_async({T[0]: OffsetAndMetadata(3)}, lambda o, e: heard.append((3, e)))
    member.loop.advance(100)
    member.loop.run(member.poll(0))
    assert isinstance(heard[-1][1], RetriableCommitError)
    assert heard[-1][1].retriable


def test_a_commit_is_tried_again_while_the_coordinator_moves(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member)
    cluster.move_coordinator(2)
    member.loop.run(member.core.commit({T[0]: OffsetAndMetadata(5)}, 5_000))
    assert cluster.commits[-1].offset == 5


def test_a_member_that_was_thrown_out_cannot_commit_and_loses_its_partitions(
    cluster: ReaderCluster,
) -> None:
    member = TwinMember(cluster, session_timeout_ms=6_000, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member)
    cluster.before = lambda broker, connection, request: not isinstance(request, HeartbeatRequest)
    member.loop.advance(20_000)
    cluster.before = lambda *_: True
    with pytest.raises((CommitFailedError, TimedOutError)):
        member.loop.run(member.core.commit({T[0]: OffsetAndMetadata(5)}, 5_000))
    settle(member)
    assert [kind for kind, _ in member.events] == ["assigned", "lost", "assigned"]
    assert member.owned == frozenset(T)


def test_no_commit_between_two_generations(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member)
    other = TwinMember(cluster)
    other.subscribe(["t"])
    other.loop.run(other.poll(4_000))

    def commit_while_it_rebalances() -> None:
        for _ in range(50):
            member.loop.run(member.poll(1))
            member.loop.run(member.core.commit({T[0]: OffsetAndMetadata(5)}, 100))

    with pytest.raises(RebalanceInProgressError):
        commit_while_it_rebalances()


def test_a_static_member_comes_back_to_its_partitions(cluster: ReaderCluster) -> None:
    first = TwinMember(cluster, group_instance_id="one", session_timeout_ms=10_000)
    second = TwinMember(cluster, group_instance_id="two", session_timeout_ms=10_000)
    for each in (first, second):
        each.subscribe(["t"])
    settle(first, second)
    had, generation = first.owned, second.core.group.generation_id
    assert len(had) == 2
    first.loop.run(first.close())
    assert not sent(cluster, LeaveGroupRequest)
    again = TwinMember(cluster, group_instance_id="one", session_timeout_ms=10_000)
    again.subscribe(["t"])
    settle(again, second, for_ms=4_000)
    assert again.owned == had
    assert second.core.group.generation_id == generation, "nobody else rebalanced"


def test_a_second_consumer_under_one_instance_id_fences_the_first(cluster: ReaderCluster) -> None:
    first = TwinMember(cluster, group_instance_id="one")
    first.subscribe(["t"])
    settle(first, for_ms=3_000)
    second = TwinMember(cluster, group_instance_id="one")
    second.subscribe(["t"])
    settle(second, for_ms=3_000)
    with pytest.raises(FencedInstanceIdError):
        settle(first)
    seen = list(first.seen)
    for number in range(4):
        cluster.fill("t", number, 10)
    for _ in range(5):
        # What came before the fence, and after it, belongs to the second one.
        first.loop.advance(500)
        with pytest.raises(FencedInstanceIdError):
            first.loop.run(first.poll(0))
    assert first.seen == seen


def test_who_polls_too_seldom_leaves_and_comes_back(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, max_poll_interval_ms=5_000)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    member.loop.advance(4_000)
    assert not sent(cluster, LeaveGroupRequest)
    member.loop.advance(4_000)
    assert len(sent(cluster, LeaveGroupRequest)) == 1
    settle(member, for_ms=4_000)
    assert [kind for kind, _ in member.events] == ["assigned", "lost", "assigned"]


def test_a_pattern_takes_topics_that_come_later(cluster: ReaderCluster) -> None:
    cluster.create_topic("logs-a", 1)
    cluster.create_topic("other", 1)
    member = TwinMember(cluster, metadata_max_age_ms=2_000)
    member.core.subscribe(re.compile("logs-.*"), member)
    settle(member, for_ms=4_000)
    assert member.owned == {TopicPartition("logs-a", 0)}
    cluster.create_topic("logs-b", 2)
    settle(member, for_ms=6_000)
    assert {place.topic for place in member.owned} == {"logs-a", "logs-b"}


def test_new_partitions_are_divided_by_the_leader(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, metadata_max_age_ms=2_000)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    topic = cluster.topics["t"]
    topic.partitions.append(type(topic.partitions[0])(leader=1))
    settle(member, for_ms=6_000)
    assert TopicPartition("t", 4) in member.owned


def test_a_cooperative_group_keeps_reading_while_it_divides(cluster: ReaderCluster) -> None:
    strategy = "cooperative-sticky"
    first = TwinMember(cluster, partition_assignment_strategy=strategy)
    first.subscribe(["t"])
    settle(first, for_ms=3_000)
    second = TwinMember(cluster, partition_assignment_strategy=strategy)
    second.subscribe(["t"])
    settle(first, second)
    revoked = [places for kind, places in first.events if kind == "revoked"]
    assert len(revoked) == 1
    assert len(revoked[0]) == 2
    assert first.owned | second.owned == frozenset(T)
    kept = [places for kind, places in first.events if kind == "assigned"]
    assert kept[0] == frozenset(T)
    assert not any(kept[1:]), "what it kept was never assigned anew"


def test_the_listener_may_commit_and_seek(cluster: ReaderCluster) -> None:
    class Seeking(TwinMember):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            super().on_partitions_assigned(partitions)
            for place in partitions:
                self.core.seek(place, 7)

    member = Seeking(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    assert sorted(member.seen) == [(place, offset) for place in T for offset in (7, 8, 9)]


def test_a_listener_that_fails_is_heard_and_the_rebalance_goes_on(cluster: ReaderCluster) -> None:
    class Failing(TwinMember):
        def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
            super().on_partitions_assigned(partitions)
            raise LookupError("mine")

    member = Failing(cluster)
    member.subscribe(["t"])
    with pytest.raises(LookupError, match="mine"):
        settle(member)
    settle(member, for_ms=1_000)
    assert len(member.seen) == 40


def test_a_group_with_no_assignor_in_common_is_told(cluster: ReaderCluster) -> None:
    first = TwinMember(cluster, partition_assignment_strategy="range")
    first.subscribe(["t"])
    settle(first, for_ms=3_000)
    second = TwinMember(cluster, partition_assignment_strategy="sticky")
    second.subscribe(["t"])
    with pytest.raises(BrokerError) as caught:
        settle(second)
    assert caught.value.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_several_assignors_meet_in_one_that_all_have(cluster: ReaderCluster) -> None:
    first = TwinMember(cluster, partition_assignment_strategy="sticky,range")
    second = TwinMember(cluster, partition_assignment_strategy="roundrobin,range")
    first.subscribe(["t"])
    settle(first, for_ms=3_000)
    second.subscribe(["t"])
    settle(first, second)
    assert first.owned | second.owned == frozenset(T)
    assert isinstance(first.core._membership, ClassicMembership)
    assert first.core._membership.member.assignor == "range"


def test_unsubscribing_leaves_and_another_subscription_joins_anew(cluster: ReaderCluster) -> None:
    cluster.create_topic("u", 1)
    member = TwinMember(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    with pytest.raises(ValueError, match="cannot be combined"):
        member.core.assign([T[0]])
    member.core.unsubscribe_now()
    member.loop.advance(500)
    assert len(sent(cluster, LeaveGroupRequest)) == 1
    member.subscribe(["u"])
    settle(member, for_ms=3_000)
    assert member.core.subscription.partitions.keys() == {TopicPartition("u", 0)}


def test_a_change_of_topics_rebalances(cluster: ReaderCluster) -> None:
    cluster.create_topic("u", 1)
    member = TwinMember(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    member.subscribe(["t", "u"])
    settle(member, for_ms=3_000)
    assert member.owned == {*T, TopicPartition("u", 0)}
    assert not sent(cluster, LeaveGroupRequest)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ],
)
def test_joining_goes_on_after_what_passes(cluster: ReaderCluster, error: ErrorCode) -> None:
    refused = JoinGroupResponse(
        error_code=error.code, protocol_name="", leader="", member_id="", members=[]
    )
    refuse_once(cluster, JoinGroupRequest, refused)
    member = TwinMember(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    assert member.owned == frozenset(T)


def test_enforce_rebalance_and_metrics(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    generation = member.core.group.generation_id
    member.core.enforce_rebalance("the test says so")
    settle(member, for_ms=3_000)
    assert member.core.group.generation_id == generation + 1
    reasons = [each.reason for each in sent(cluster, JoinGroupRequest)]  # type: ignore[attr-defined]
    assert "the test says so" in reasons
    metrics = member.core.metrics()
    assert metrics["consumer-coordinator-metrics", "assigned-partitions"] == 4
    assert metrics["consumer-coordinator-metrics", "rebalance-total"] == 2
    assert metrics["consumer-fetch-manager-metrics", "records-lag-max"] == 0


def test_closing_commits_tells_and_leaves(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, auto_commit_interval_ms=600_000)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    assert not cluster.commits
    member.loop.run(member.close())
    assert {each.place: each.offset for each in cluster.commits} == dict.fromkeys(T, 10)
    assert member.events[-1] == ("revoked", frozenset(T))
    assert len(sent(cluster, LeaveGroupRequest)) == 1
    with pytest.raises(ClosedError):
        member.core.poll(0)


def test_without_a_group_there_is_nothing_to_commit_to(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, group_id=None)
    member.core.assign([T[0]])
    with pytest.raises(ConfigError):
        member.loop.run(member.core.commit(None, 1_000))
    assert not sent(cluster, OffsetCommitRequest)


def test_assigned_partitions_can_be_committed_under_a_group(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.core.assign(T[:2])
    settle(member, for_ms=1_000)
    member.loop.run(member.core.commit(None, 5_000))
    assert {each.place: each.offset for each in cluster.commits} == dict.fromkeys(T[:2], 10)
    assert not sent(cluster, JoinGroupRequest)


def test_a_poll_that_nobody_waits_for_any_more_loses_nothing(cluster: ReaderCluster) -> None:
    """Ctrl-C, or a task that is cancelled, while the group has something for the listener."""
    member = TwinMember(cluster)
    member.subscribe(["t"])
    for _ in range(40):
        waiting = member.core.poll(60_000)
        member.loop.advance(50)
        member.core.user.abandon(waiting)
        assert waiting.done
    assert member.events == []
    settle(member, for_ms=1_000)
    assert member.owned == frozenset(T)
    waiting = member.core.poll(60_000)
    member.core.user.abandon(waiting)
    member.loop.run(member.close())
    assert member.events[-1] == ("revoked", frozenset(T))


def test_a_topic_that_is_created_later_is_divided_then(cluster: ReaderCluster) -> None:
    first, second = TwinMember(cluster), TwinMember(cluster)
    for each in (first, second):
        each.subscribe(["later"])
    settle(first, second)
    assert first.owned == second.owned == frozenset()
    cluster.create_topic("later", 2)
    cluster.fill("later", 0, 3)
    settle(first, second)
    assert len(first.owned) == len(second.owned) == 1
    assert len(first.seen) + len(second.seen) == 3


@pytest.mark.slow
def test_a_deleted_topic_leaves_the_group_alive(cluster: ReaderCluster) -> None:
    cluster.create_topic("u", 1)
    member = TwinMember(cluster, metadata_max_age_ms=2_000)
    member.subscribe(["t", "u"])
    settle(member, for_ms=3_000)
    cluster.delete_topic("u")
    settle(member, for_ms=6_000)
    cluster.fill("t", 0, 5)
    settle(member, for_ms=2_000)
    assert (T[0], 14) in member.seen


def test_who_unsubscribes_while_joining_does_not_join(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.subscribe(["t"])
    member.loop.run(member.poll(100))
    member.core.unsubscribe_now()
    member.core.assign([T[0]])
    settle(member)
    joins = len(sent(cluster, JoinGroupRequest))
    assert joins <= 2
    assert len(member.seen) == 10
    member.loop.run(member.core.commit(None, 5_000))
    began = member.loop.now_ms()
    member.loop.run(member.close())
    assert member.loop.now_ms() - began < 1_000
    assert cluster.commits[-1].generation == -1


def test_what_no_topic_can_be_called_changes_no_subscription(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.subscribe(["t"])
    for wrong in ("\ud800", 5):
        with pytest.raises(BrokerError, match="not the name of a topic"):
            member.subscribe(["t", wrong])  # type: ignore[list-item]
    settle(member)
    assert len(member.seen) == 40


def test_a_rebalance_commits_nothing_that_the_user_is_at_work_on(cluster: ReaderCluster) -> None:
    for number in range(4):
        for _ in range(20):
            cluster.fill("t", number, 50)
    settings = {"partition_assignment_strategy": "cooperative-sticky", "enable_auto_commit": True}
    members = [TwinMember(cluster, auto_commit_interval_ms=600_000, **settings) for _ in range(3)]
    done = dict.fromkeys(T, 0)
    looked_at = 0

    def work(member: TwinMember) -> None:
        nonlocal looked_at
        before = len(member.seen)
        member.loop.run(member.poll(50, max_records=5))
        # The records that came are at work for a while, and not done.
        member.loop.advance(100)
        for commit in cluster.commits[looked_at:]:
            assert commit.offset <= done[commit.place]
        looked_at = len(cluster.commits)
        for place, offset in member.seen[before:]:
            done[place] = max(done[place], offset + 1)

    for count in range(1, len(members) + 1):
        members[count - 1].core.subscribe(["t"], None)
        for _ in range(60):
            for member in members[:count]:
                work(member)
    assert looked_at


def test_closing_leaves_the_group_though_the_last_commit_fails(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, auto_commit_interval_ms=600_000)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if isinstance(request, OffsetCommitRequest):
            return refused_commit(request, ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    cluster.hooks.append(hook)
    member.loop.run(member.close())
    assert member.events[-1] == ("revoked", frozenset(T))
    assert len(sent(cluster, LeaveGroupRequest)) == 1


def test_closing_leaves_the_group_though_the_last_commit_never_ends(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, auto_commit_interval_ms=600_000)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)

    def hook(broker: TwinBroker, request: Request) -> Response | None:
        if isinstance(request, OffsetCommitRequest):
            return refused_commit(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    cluster.hooks.append(hook)
    member.loop.run(member.close())
    member.loop.advance(1_000)
    assert member.events[-1] == ("revoked", frozenset(T))
    assert len(sent(cluster, LeaveGroupRequest)) == 1


def test_who_waits_in_a_poll_does_poll(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, max_poll_interval_ms=5_000, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member, for_ms=3_000)
    member.loop.run(member.poll(20_000))
    assert not sent(cluster, LeaveGroupRequest)
    assert len(member.events) == 1


@pytest.mark.parametrize("behind", [False, True])
def test_a_commit_ends_in_time_though_nobody_answers(cluster: ReaderCluster, behind: bool) -> None:
    member = TwinMember(cluster, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    cluster.after = lambda *asked: None if isinstance(asked[2], OffsetCommitRequest) else 0.0
    if behind:
        member.core.commit_async({T[0]: OffsetAndMetadata(1)}, None)
    late = spawn(member.core.commit({T[0]: OffsetAndMetadata(2)}, 1_000))
    member.loop.advance(1_100)
    with pytest.raises(TimedOutError, match="the commit after 1000 ms"):
        late.result()
    cluster.after = lambda *_: 0.0
    member.loop.run(member.core.commit({T[0]: OffsetAndMetadata(3)}, 60_000))
    member.loop.advance(60_000)
    # What its caller had given up waiting for did not come after what was committed later.
    assert [each.offset for each in cluster.commits] == [1 if behind else 2, 3]


def test_questions_about_offsets_end_in_time_though_nobody_answers(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    cluster.after = lambda *_: None
    asked: list[Deferred[object]] = [
        spawn(member.core.committed(T, 1_000)),
        spawn(member.core.find_offsets({T[0]: -1}, 1_000)),
    ]
    member.loop.advance(1_100)
    for each in asked:
        with pytest.raises(TimedOutError, match="1000 ms"):
            each.result()


def test_closing_at_once_tells_the_listener_and_the_group(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    member.loop.run(member.close(0, pause_ms=5))
    member.loop.advance(100)
    assert member.events[-1] == ("revoked", frozenset(T))
    assert len(sent(cluster, LeaveGroupRequest)) == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_nothing_comes_of_topics_that_are_subscribed_to_no_more(
    cluster: ReaderCluster, strategy: str
) -> None:
    cluster.create_topic("other")
    cluster.fill("other", 0, 3)
    member = TwinMember(cluster, partition_assignment_strategy=strategy)
    member.subscribe(["t"])
    while not member.owned:
        member.loop.run(member.poll(10, max_records=1))
    member.loop.advance(1_000)
    member.loop.run(member.poll(0, max_records=1))
    before = len(member.seen)
    member.subscribe(["other"])
    settle(member, for_ms=5_000)
    assert [place.topic for place, _ in member.seen[before:]] == ["other"] * 3


def test_to_assign_nothing_is_to_unsubscribe(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster)
    member.core.assign(T[:1])
    member.core.assign([])
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    assert member.owned == frozenset(T)


@pytest.mark.parametrize("timeout_ms", range(1_000, 3_000, 250))
def test_what_does_not_succeed_in_time_says_why(cluster: ReaderCluster, timeout_ms: int) -> None:
    member = TwinMember(cluster, enable_auto_commit=False)
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    for broker in cluster.brokers.values():
        broker.stop()
    asked: list[Deferred[object]] = [
        spawn(member.core.commit({T[0]: OffsetAndMetadata(1)}, timeout_ms)),
        spawn(member.core.committed(T, timeout_ms)),
        spawn(member.core.find_offsets({T[0]: -1}, timeout_ms)),
    ]
    member.loop.advance(timeout_ms + 1)
    for each in asked:
        with pytest.raises(ConnectionFailedError, match="the broker at"):
            each.result()


def test_a_coordinator_that_is_silent_for_a_session_is_given_up(cluster: ReaderCluster) -> None:
    member = TwinMember(cluster, session_timeout_ms=10_000, heartbeat_interval_ms=1_000)
    member.subscribe(["t"])
    settle(member, for_ms=4_000)
    cluster.after = lambda *asked: (
        None if isinstance(asked[2], HeartbeatRequest) and asked[0].node_id == 1 else 0.0
    )
    cluster.move_coordinator(2)
    settle(member, for_ms=12_000)
    assert any(isinstance(each, HeartbeatRequest) for each in cluster.brokers[2].requests)


class Stumbling(RangeAssignor):
    """Fails in one of its methods, the first time."""

    def __init__(self, where: str) -> None:
        self._where: str | None = where

    def _stumble(self, where: str) -> None:
        if where == self._where:
            self._where = None
            raise ArithmeticError(where)

    def user_data(self, topics: frozenset[str]) -> bytes | None:
        self._stumble("user_data")
        return super().user_data(topics)

    def assign(self, topics: TopicRacks, members: Sequence[GroupMember]) -> Assignments:
        self._stumble("assign")
        return super().assign(topics, members)

    def on_assignment(self, partitions: Iterable[TopicPartition], generation: int) -> None:
        self._stumble("on_assignment")
        super().on_assignment(partitions, generation)


@pytest.mark.parametrize("where", ["user_data", "assign", "on_assignment"])
def test_after_an_assignor_has_failed_the_next_poll_begins_anew(
    cluster: ReaderCluster, where: str
) -> None:
    member = TwinMember(cluster, partition_assignment_strategy=[Stumbling(where)])
    member.subscribe(["t"])
    with pytest.raises(ArithmeticError, match=where):
        settle(member)
    settle(member)
    assert member.owned == frozenset(T)


@pytest.mark.parametrize(
    ("request_class", "error"),
    [
        (JoinGroupRequest, ErrorCode.UNKNOWN_MEMBER_ID),
        (JoinGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS),
        (SyncGroupRequest, ErrorCode.ILLEGAL_GENERATION),
        (SyncGroupRequest, ErrorCode.REBALANCE_IN_PROGRESS),
    ],
)
def test_a_coordinator_that_refuses_every_member_is_not_flooded(
    cluster: ReaderCluster, request_class: type[Request], error: ErrorCode
) -> None:
    member = TwinMember(cluster)
    refusing = [True]

    def refuse(broker: TwinBroker, request: Request) -> Response | None:
        if not isinstance(request, request_class) or not refusing:
            return None
        if request_class is SyncGroupRequest:
            return SyncGroupResponse(error_code=error.code, assignment=b"")
        return JoinGroupResponse(
            error_code=error.code, protocol_name="", leader="", member_id="", members=[]
        )

    cluster.hooks.append(refuse)
    member.subscribe(["t"])
    settle(member, for_ms=10_000)
    asked = len(sent(cluster, JoinGroupRequest))
    assert 5 <= asked <= 60, "the first at once, then at most one in retry.backoff.max.ms"
    refusing.clear()
    settle(member, for_ms=6_000)
    assert len(member.seen) == 40
