"""ConsumerGroupHeartbeat, one rule a test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.coordinator.consumer.consumer_scene import (
    TIMEOUT_MS,
    Consumer,
    ConsumerScene,
    settle,
    topics,
)
from tests.unit.coordinator.scene import GROUP, SETTINGS

from millstream.coordinator.group import groups
from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.modern.member import MemberState
from millstream.coordinator.group.modern.modern_group import ModernGroupState
from millstream.coordinator.group.settings import ConsumerSettings, ConsumerTimes
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


@pytest.fixture
def scene() -> ConsumerScene:
    return ConsumerScene(topics=topics(t=4))


def test_the_first_member_gets_every_partition_at_once(scene: ConsumerScene) -> None:
    response = scene.beat("one")
    assert (response.member_id, response.member_epoch) == ("one", 2)
    assert response.heartbeat_interval_ms == 5_000
    assert scene.assigned(response) == {"t": [0, 1, 2, 3]}
    assert scene.consumers.state is ModernGroupState.STABLE


def test_a_heartbeat_without_news_has_no_assignment_and_writes_nothing(
    scene: ConsumerScene,
) -> None:
    scene.beat("one")
    written = len(scene.log)
    response = scene.beat("one", 2)
    assert response.member_epoch == 2
    assert response.assignment is None
    assert len(scene.log) == written


def test_a_full_request_is_answered_with_the_assignment(scene: ConsumerScene) -> None:
    scene.beat("one")
    response = scene.beat("one", 2, names=["t"], owned={"t": [0, 1, 2, 3]}, timeout_ms=TIMEOUT_MS)
    assert scene.assigned(response) == {"t": [0, 1, 2, 3]}


def test_in_version_0_the_broker_makes_the_member_id(scene: ConsumerScene) -> None:
    assert scene.beat("", version=0).member_id == "id1"
    assert scene.beat_error("", version=1) is ErrorCode.INVALID_REQUEST


def test_no_partition_goes_to_the_second_member_before_the_first_gives_it_back(
    scene: ConsumerScene,
) -> None:
    scene.beat("one")
    scene.advance(1_000)
    second = scene.beat("two")
    assert second.member_epoch == 3
    assert scene.assigned(second) == {}
    assert scene.consumers.members["two"].state is MemberState.UNRELEASED_PARTITIONS
    first = scene.beat("one", 2, owned={"t": [0, 1, 2, 3]})
    assert first.member_epoch == 2  # it has to give back before it follows
    kept = scene.assigned(first)
    assert kept is not None
    assert len(kept["t"]) == 2
    assert scene.beat("two", 3, owned={}).assignment is None
    assert scene.beat("one", 2, owned=kept).member_epoch == 3
    moved = scene.assigned(scene.beat("two", 3, owned={}))
    assert moved is not None
    assert sorted(kept["t"] + moved["t"]) == [0, 1, 2, 3]
    assert scene.consumers.state is ModernGroupState.STABLE


def test_a_member_that_does_not_say_what_it_owns_has_not_given_back(scene: ConsumerScene) -> None:
    scene.beat("one")
    scene.advance(1_000)
    scene.beat("two")
    scene.beat("one", 2, owned={"t": [0, 1, 2, 3]})
    assert scene.beat("one", 2).member_epoch == 2
    assert scene.consumers.members["one"].state is MemberState.UNREVOKED_PARTITIONS


def test_target_assignments_are_made_at_an_interval(scene: ConsumerScene) -> None:
    scene.beat("one")
    response = scene.beat("two")
    assert response.member_epoch == 2
    assert scene.consumers.group_epoch == 3
    assert scene.consumers.state is ModernGroupState.ASSIGNING
    scene.advance(999)
    assert scene.consumers.assignment_epoch == 2
    scene.advance(1)
    assert scene.consumers.assignment_epoch == 3


def test_epochs_are_checked(scene: ConsumerScene) -> None:
    scene.beat("one")
    assert scene.beat_error("one", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    assert scene.beat_error("two", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    scene.put_topic("t", 5)
    scene.advance(1_000)
    assert scene.beat("one", 2, owned={"t": [0, 1, 2, 3]}).member_epoch == 3
    # The answer was lost: the member repeats its heartbeat with the previous epoch.
    assert scene.beat("one", 2, owned={"t": [0, 1, 2, 3]}).member_epoch == 3
    assert scene.beat_error("one", 2) is ErrorCode.FENCED_MEMBER_EPOCH
    assert scene.beat_error("one", 2, owned={"t": [7]}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_joins_again_keeps_its_partitions(scene: ConsumerScene) -> None:
    scene.beat("one")
    response = scene.beat("one", 0)
    assert response.member_epoch == 2
    assert scene.assigned(response) == {"t": [0, 1, 2, 3]}


def test_only_the_first_heartbeat_makes_a_group(scene: ConsumerScene) -> None:
    assert scene.beat_error("one", 2) is ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.beat_error("one", -1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert len(scene.coordinator.groups) == 0
    assert scene.log == []


def test_requests_are_validated(scene: ConsumerScene) -> None:
    invalid = ErrorCode.INVALID_REQUEST
    assert scene.beat_error("one", 0, owned={"t": [0]}) is invalid
    assert scene.beat_error("one", 0, timeout_ms=-1) is invalid
    assert scene.beat_error("one", -2) is invalid
    assert scene.beat_error("one", -3) is invalid
    assert scene.beat_error("one", 0, instance_id=" ") is invalid
    assert scene.beat_error("one", 0, rack_id="") is invalid
    assert scene.beat_error("one", 0, assignor="mine") is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert scene.beat_error("one", 0, assignor="range") is ErrorCode.NONE


@pytest.mark.parametrize(
    "lacking", ["rebalance_timeout_ms", "topic_partitions", "subscribed_topic_names"]
)
def test_a_member_that_joins_says_everything(scene: ConsumerScene, lacking: str) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=TIMEOUT_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    setattr(request, lacking, -1 if lacking == "rebalance_timeout_ms" else None)
    with pytest.raises(KafkaError) as refused:
        scene.send(request)
    assert refused.value.error is ErrorCode.INVALID_REQUEST
    assert len(scene.coordinator.groups) == 0


def test_a_change_that_is_too_large_for_the_log_changes_nothing() -> None:
    scene = ConsumerScene(replace(SETTINGS, max_batch_bytes=4_000), topics(t=4))
    scene.beat("one")
    scene.advance(1_000)
    written, epoch = len(scene.log), scene.consumers.group_epoch
    names = [f"topic-{number:040}" for number in range(200)]
    assert scene.beat_error("two", names=names) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert set(scene.consumers.members) == {"one"}
    assert (len(scene.log), scene.consumers.group_epoch) == (written, epoch)
    assert scene.beat("one", 2).member_epoch == 2


def test_a_member_that_leaves_makes_place(scene: ConsumerScene) -> None:
    one, two = Consumer(scene, "one"), Consumer(scene, "two")
    settle(scene, one, two)
    assert scene.beat("two", -1).member_epoch == -1
    settle(scene, one)
    assert one.owned == {"t": [0, 1, 2, 3]}
    assert scene.beat_error("two", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    scene.beat("one", -1)
    assert scene.consumers.state is ModernGroupState.EMPTY


def test_a_member_without_heartbeats_is_removed_after_its_session(scene: ConsumerScene) -> None:
    one, two = Consumer(scene, "one"), Consumer(scene, "two")
    settle(scene, one, two)
    for _ in range(8):
        scene.advance(5_000)
        one.beat()
    assert set(scene.consumers.members) == {"one", "two"}
    scene.advance(5_000)
    assert set(scene.consumers.members) == {"one"}
    settle(scene, one)
    assert one.owned == {"t": [0, 1, 2, 3]}


def test_a_member_that_gives_nothing_back_is_removed_after_its_rebalance_timeout(
    scene: ConsumerScene,
) -> None:
    scene.beat("one")
    scene.advance(1_000)
    two = Consumer(scene, "two")
    two.beat()
    for _ in range(6):
        scene.beat("one", 2, owned={"t": [0, 1, 2, 3]})
        two.beat()
        scene.advance(5_000)
    assert set(scene.consumers.members) == {"two"}
    settle(scene, two)
    assert two.owned == {"t": [0, 1, 2, 3]}


def test_a_static_member_that_comes_back_takes_its_partitions_over(scene: ConsumerScene) -> None:
    one = Consumer(scene, "one", instance_id="i1")
    two = Consumer(scene, "two", instance_id="i2")
    settle(scene, one, two)
    epoch, had = scene.consumers.group_epoch, one.owned
    assert scene.beat_error("new", 0, instance_id="i1") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert scene.beat("one", -2, instance_id="i1").member_epoch == -2
    new = Consumer(scene, "new", instance_id="i1")
    new.beat()
    assert new.owned == had
    assert scene.consumers.group_epoch == epoch
    assert set(scene.consumers.members) == {"new", "two"}
    assert scene.beat_error("one", epoch, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.beat_error("x", 2, instance_id="i9") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_removed(scene: ConsumerScene) -> None:
    scene.beat("one", instance_id="i1")
    scene.beat("one", -2, instance_id="i1")
    scene.advance(45_000)
    assert scene.consumers.is_empty


def test_new_partitions_are_assigned(scene: ConsumerScene) -> None:
    one = Consumer(scene, "one")
    settle(scene, one)
    scene.put_topic("t", 6)
    settle(scene, one)
    assert one.owned == {"t": [0, 1, 2, 3, 4, 5]}
    scene.remove_topic("t")
    settle(scene, one)
    assert one.owned == {}


def test_a_topic_may_come_after_its_subscribers(scene: ConsumerScene) -> None:
    one = Consumer(scene, "one", names=["later"])
    settle(scene, one)
    assert one.owned == {}
    scene.put_topic("later", 2)
    settle(scene, one)
    assert one.owned == {"later": [0, 1]}


def test_a_member_changes_its_subscription(scene: ConsumerScene) -> None:
    scene.put_topic("u", 1)
    scene.beat("one")
    response = scene.beat("one", 2, names=["u"], owned={"t": [0, 1, 2, 3]})
    assert scene.assigned(response) == {}
    assert response.member_epoch == 2
    scene.advance(1_000)
    response = scene.beat("one", 2, owned={})
    assert scene.assigned(response) == {"u": [0]}
    assert response.member_epoch == 3


def test_the_group_is_limited() -> None:
    settings = replace(SETTINGS, consumer=ConsumerSettings(max_size=1))
    scene = ConsumerScene(settings, topics(t=1))
    scene.beat("one")
    assert scene.beat_error("two") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.beat_error("one", 2) is ErrorCode.NONE


def test_the_times_of_a_group_are_looked_up_each_time() -> None:
    times = {"g": ConsumerTimes(heartbeat_interval_ms=7_000, session_timeout_ms=50_000)}
    settings = replace(SETTINGS, consumer=ConsumerSettings(times_of=lambda name: times[name]))
    scene = ConsumerScene(settings, topics(t=1))
    assert scene.beat("one").heartbeat_interval_ms == 7_000
    scene.advance(49_999)
    assert not scene.consumers.is_empty
    times["g"] = ConsumerTimes(session_timeout_ms=60_000)
    assert scene.beat("one", 2).heartbeat_interval_ms == 5_000
    scene.advance(59_999)
    assert not scene.consumers.is_empty
    scene.advance(1)
    assert scene.consumers.is_empty


def test_the_assignor_that_most_members_want_is_taken() -> None:
    scene = ConsumerScene(topics=topics(t=2, u=2))
    consumers = []
    for name in ("one", "two"):
        scene.beat(name, 0, names=["t", "u"], assignor="range")
        consumers.append(Consumer(scene, name, names=["t", "u"]))
        scene.advance(1_000)
    settle(scene, *consumers)
    assert consumers[0].owned == {"t": [0], "u": [0]}
    assert consumers[1].owned == {"t": [1], "u": [1]}


def test_a_restarted_coordinator_knows_everything_that_it_knew(scene: ConsumerScene) -> None:
    one, two = Consumer(scene, "one"), Consumer(scene, "two", instance_id="i")
    settle(scene, one, two)
    restarted = scene.loaded()
    assert isinstance(restarted, ConsumerScene)
    assert restarted.consumers.members == scene.consumers.members
    assert restarted.consumers.targets == scene.consumers.targets
    assert restarted.consumers.owners == scene.consumers.owners
    one.scene = restarted
    assert one.beat() is ErrorCode.NONE
    restarted.advance(45_000)
    assert set(restarted.consumers.members) == set()


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets(
    scene: ConsumerScene,
) -> None:
    scene.commit({("t", 0): 5})
    scene.beat("one")
    assert scene.offsets() == {("t", 0): 5}
    assert isinstance(scene.loaded(), ConsumerScene)
    restarted = scene.loaded()
    assert isinstance(restarted, ConsumerScene)
    assert set(restarted.consumers.members) == {"one"}
    assert restarted.offsets() == {("t", 0): 5}


def test_commits_are_checked_against_the_member_epoch(scene: ConsumerScene) -> None:
    scene.beat("one")
    stale = ErrorCode.STALE_MEMBER_EPOCH.code
    assert scene.commit_error({("t", 0): 1}, member_id="one", generation_id=3) == stale
    tid = scene.topics.topic("t")
    assert tid is not None
    commit = {"member_id": "one", "topic_id": tid.topic_id}
    assert scene.commit_error({("t", 0): 1}, generation_id=2, **commit) == 0
    assert scene.commit_error({("t", 0): 1}, generation_id=2, version=8, **commit) == 35
    assert scene.commit_error({("t", 0): 1}) == ErrorCode.UNKNOWN_MEMBER_ID.code
    scene.put_topic("t", 5)
    scene.advance(1_000)
    scene.beat("one", 2, owned={"t": [0, 1, 2, 3]})
    # A commit with the epoch before is good for what the member has had since then (KIP-1251).
    assert scene.commit_error({("t", 0): 2}, generation_id=2, **commit) == 0
    assert scene.commit_error({("t", 4): 2}, generation_id=2, **commit) == stale
    assert scene.commit_error({("t", 9): 2}, generation_id=2, **commit) == stale, "never had"


def test_an_empty_group_is_deleted_when_its_last_offset_expires(scene: ConsumerScene) -> None:
    scene.beat("one")
    scene.beat("one", -1)
    scene.carry_out(scene.coordinator.expire_offsets(scene.now))
    assert len(scene.coordinator.groups) == 0
    assert len(scene.loaded().coordinator.groups) == 0


def test_a_classic_member_takes_an_empty_consumer_group_over(scene: ConsumerScene) -> None:
    scene.beat("one")
    scene.beat("one", -1)
    _, reply = scene.join_new()
    scene.advance(3_000)
    assert reply.result().error_code == 0
    assert scene.state == "CompletingRebalance"


def test_an_empty_consumer_group_stays_where_no_classic_group_may_take_its_place(
    scene: ConsumerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.beat("one")
    scene.beat("one", -1)
    scene.commit({("t", 0): 1}, group_id="another")
    scene.commit({("t", 0): 1}, group_id="a third one")
    monkeypatch.setattr(groups, "MAX_GROUPS_PER_SHARD", 2)
    with pytest.raises(KafkaError) as caught:
        scene.join()
    assert caught.value.error is ErrorCode.POLICY_VIOLATION
    assert isinstance(scene.coordinator.groups.get(GROUP), ConsumerGroup)
    monkeypatch.setattr(groups, "MAX_GROUPS_PER_SHARD", 3)
    scene.join()
    assert isinstance(scene.coordinator.groups.get(GROUP), ClassicGroup)


def test_the_group_is_described_and_listed(scene: ConsumerScene) -> None:
    scene.beat("one", rack_id="r1", instance_id="i1")
    described = scene.coordinator.describe_consumer_group("g").response
    assert described is not None
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Stable",
        2,
        2,
    )
    assert described.assignor_name == "uniform"
    (member,) = described.members
    assert (member.rack_id, member.instance_id, member.member_type) == ("r1", "i1", 1)
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("t", [0, 1, 2, 3])
    assert member.target_assignment == member.assignment
    unknown = scene.coordinator.describe_consumer_group("x").response
    assert unknown is not None
    assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND.code
    listed = scene.coordinator.list_groups(states=["stable"], types=["consumer"]).response
    assert listed is not None
    assert [(each.group_id, each.protocol_type) for each in listed] == [("g", "consumer")]
    assert scene.coordinator.describe_group("g", 6).response.error_code == 69  # type: ignore[union-attr]
