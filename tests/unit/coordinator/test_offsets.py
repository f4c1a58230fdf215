"""Offsets: commit, fetch, delete, expiry. One rule a test."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.scene import GROUP, WALL_START_MS, Scene, error_of, subscription

from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.result import TopicChange
from millstream.model.topic import TopicId
from millstream.protocol.messages.coordinator_records import OffsetCommitKey, OffsetCommitValue

DAY_MS = 24 * 3_600_000
TOPIC_ID = TopicId(bytes(range(16)))
OTHER_TOPIC_ID = TopicId(bytes(range(16, 32)))


def commit_record(
    offset: int, *, partition: int = 0, topic: str = "t"
) -> tuple[OffsetCommitKey, OffsetCommitValue]:
    return (
        OffsetCommitKey(group=GROUP, topic=topic, partition=partition),
        OffsetCommitValue(offset=offset, metadata="", commit_timestamp=WALL_START_MS),
    )


# OffsetCommit


def test_a_consumer_that_assigns_itself_makes_a_simple_group() -> None:
    scene = Scene()
    assert scene.commit_error({("t", 0): 42}) == 0
    assert scene.offsets() == {("t", 0): 42}
    assert scene.state == "Empty"
    assert scene.group.protocol_type is None


def test_a_commit_survives_a_restart() -> None:
    scene = Scene()
    scene.commit({("t", 0): 42, ("u", 3): 7})
    scene.commit({("t", 0): 43})
    assert scene.loaded().offsets() == {("t", 0): 43, ("u", 3): 7}


def test_a_commit_keeps_leader_epoch_and_metadata() -> None:
    scene = Scene()
    scene.commit({("t", 0): 42}, metadata="note")
    partition = scene.fetch({"t": [0]}).topics[0].partitions[0]
    assert partition.committed_leader_epoch == 3
    assert partition.metadata == "note"


def test_metadata_null_is_kept_as_empty() -> None:
    scene = Scene()
    scene.commit({("t", 0): 42}, metadata=None)
    assert scene.fetch({"t": [0]}).topics[0].partitions[0].metadata == ""


@pytest.mark.parametrize(
    ("metadata", "error"),
    [("x" * 4096, 0), ("x" * 4097, 12), ("é" * 4096, 0), ("\U0001f600" * 2049, 12)],
)
def test_metadata_has_a_limit_in_utf_16_units(metadata: str, error: int) -> None:
    scene = Scene()
    assert scene.commit_error({("t", 0): 42}, metadata=metadata) == error
    assert scene.offsets() == ({} if error else {("t", 0): 42})


@pytest.mark.parametrize(("version", "error"), [(8, 22), (9, 69), (10, 69)])
def test_a_generation_of_an_unknown_group(version: int, error: int) -> None:
    scene = Scene()
    assert (
        scene.commit_error({("t", 0): 1}, member_id="m", generation_id=1, version=version) == error
    )


def test_a_member_commits_in_its_generation() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    for generation_id, error in [(0, 22), (1, 0), (2, 22), (-1, 22)]:
        assert (
            scene.commit_error({("t", 0): 1}, member_id=member, generation_id=generation_id)
            == error
        )
    assert scene.commit_error({("t", 0): 1}, member_id="nobody", generation_id=1) == 25


def test_only_members_commit_while_there_are_members() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    assert scene.commit_error({("t", 0): 1}) == 25
    scene.leave((member, None))
    assert scene.commit_error({("t", 0): 1}) == 0
    assert scene.commit_error({("t", 0): 1}, member_id="m", generation_id=2) == 25


def test_a_commit_is_refused_between_join_and_sync_alone() -> None:
    scene = Scene()
    leader, _ = scene.join_new()
    follower, _ = scene.join_new()
    scene.advance(6_000)
    assert scene.commit_error({("t", 0): 1}, member_id=leader, generation_id=1) == 27
    scene.sync(leader, {})
    assert scene.commit_error({("t", 0): 1}, member_id=follower, generation_id=1) == 0
    scene.join(leader)
    assert scene.state == "PreparingRebalance"
    assert scene.commit_error({("t", 0): 1}, member_id=follower, generation_id=1) == 0


def test_a_commit_keeps_the_session() -> None:
    scene = Scene()
    member = scene.stable_group(1)[0]
    for _ in range(5):
        scene.advance(9_000)
        scene.commit({("t", 0): 1}, member_id=member, generation_id=1)
    assert scene.state == "Stable"


# OffsetFetch


def test_nothing_committed_is_offset_minus_1() -> None:
    scene = Scene()
    partition = scene.fetch({"t": [0]}).topics[0].partitions[0]
    assert partition.committed_offset == partition.committed_leader_epoch == -1
    assert (partition.metadata, partition.error_code) == ("", 0)


def test_no_topics_means_all_topics() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1, ("t", 1): 2, ("u", 0): 3})
    assert scene.offsets() == {("t", 0): 1, ("t", 1): 2, ("u", 0): 3}
    assert scene.offsets("unknown") == {}


def test_an_offset_of_a_recreated_topic_is_not_returned() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1}, topic_id=TOPIC_ID)
    assert scene.fetch({"t": [0]}, topic_id=TOPIC_ID).topics[0].partitions[0].committed_offset == 1
    other = scene.fetch({"t": [0]}, topic_id=OTHER_TOPIC_ID).topics[0].partitions[0]
    assert other.committed_offset == -1
    assert scene.fetch({"t": [0]}).topics[0].partitions[0].committed_offset == 1


def test_an_open_transaction_makes_its_offsets_unstable() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1, ("t", 1): 1})
    key, value = commit_record(5)
    scene.coordinator.offsets.replay(key, value, record_offset=10, producer_id=7)
    stable = scene.fetch({"t": [0, 1]}, require_stable=True).topics[0].partitions
    assert [(p.committed_offset, p.error_code) for p in stable] == [(-1, 88), (1, 0)]
    assert scene.offsets() == {("t", 0): 1, ("t", 1): 1}
    scene.coordinator.end_transaction(7, committed=True)
    assert scene.offsets() == {("t", 0): 5, ("t", 1): 1}


def test_an_aborted_transaction_leaves_the_offset() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1})
    key, value = commit_record(5)
    scene.coordinator.offsets.replay(key, value, record_offset=10, producer_id=7)
    scene.coordinator.end_transaction(7, committed=False)
    scene.coordinator.end_transaction(7, committed=True)
    assert scene.offsets() == {("t", 0): 1}
    assert scene.fetch({"t": [0]}, require_stable=True).topics[0].partitions[0].error_code == 0


def test_a_later_commit_outside_the_transaction_stays() -> None:
    scene = Scene()
    key, value = commit_record(5)
    scene.coordinator.groups.ensure_simple(GROUP)
    scene.coordinator.offsets.replay(key, value, record_offset=10, producer_id=7)
    later = commit_record(9)[1]
    scene.coordinator.offsets.replay(key, later, record_offset=11)
    scene.coordinator.end_transaction(7, committed=True)
    assert scene.offsets() == {("t", 0): 9}


# OffsetDelete


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1, ("t", 1): 2})
    answer = scene.delete_offsets({"t": [0, 5]}).topics[0]
    assert [(p.partition_index, p.error_code) for p in answer.partitions] == [(0, 0), (5, 0)]
    assert scene.offsets() == {("t", 1): 2}
    assert scene.loaded().offsets() == {("t", 1): 2}


def test_offsets_of_a_topic_that_a_member_reads_stay() -> None:
    scene = Scene()
    member = scene.stable_group(1, protocols={"range": subscription("t")})[0]
    scene.commit({("t", 0): 1, ("u", 0): 2}, member_id=member, generation_id=1)
    answers = scene.delete_offsets({"t": [0], "u": [0]}).topics
    assert [topic.partitions[0].error_code for topic in answers] == [86, 0]
    assert scene.offsets() == {("t", 0): 1}


def test_offsets_are_kept_when_the_subscription_is_unknown() -> None:
    scene = Scene()
    scene.stable_group(1, protocols={"range": b"?"})
    assert scene.delete_offsets({"t": [0]}).topics[0].partitions[0].error_code == 86


def test_offsets_of_a_group_of_others_with_members_stay() -> None:
    scene = Scene()
    _, reply = scene.join_new(protocol_type="connect", protocols={"v1": b""})
    scene.advance(3_000)
    assert reply.done
    assert error_of(lambda: scene.delete_offsets({"t": [0]}).error_code) == 68


def test_offsets_of_an_unknown_group() -> None:
    assert error_of(lambda: Scene().delete_offsets({"t": [0]}).error_code) == 69


def test_a_tombstone_ends_the_offset_of_an_open_transaction() -> None:
    scene = Scene()
    scene.commit({("u", 0): 1})
    key, value = commit_record(5)
    scene.coordinator.offsets.replay(key, value, record_offset=10, producer_id=7)
    scene.delete_offsets({"t": [0]})
    scene.coordinator.end_transaction(7, committed=True)
    assert scene.offsets() == {("u", 0): 1}


# The end of offsets


def expire(scene: Scene) -> None:
    scene.carry_out(scene.coordinator.expire_offsets(scene.now))


def test_a_simple_groups_offsets_expire_by_their_commit() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1})
    scene.advance(DAY_MS)
    scene.commit({("t", 1): 1})
    scene.advance(6 * DAY_MS - 1)
    expire(scene)
    assert scene.offsets() == {("t", 0): 1, ("t", 1): 1}
    scene.advance(1)
    expire(scene)
    assert scene.offsets() == {("t", 1): 1}
    scene.advance(DAY_MS)
    expire(scene)
    assert len(scene.coordinator.groups) == 0
    assert len(scene.loaded().coordinator.groups) == 0


def test_an_empty_groups_offsets_expire_by_when_it_became_empty() -> None:
    scene = Scene()
    member = scene.stable_group(1, session_timeout_ms=1_800_000)[0]
    scene.commit({("t", 0): 1}, member_id=member, generation_id=1)
    for _ in range(8 * 50):
        scene.advance(DAY_MS // 50)
        scene.heartbeat(member)
    scene.leave((member, None))
    scene.advance(7 * DAY_MS - 1)
    expire(scene)
    assert scene.offsets() == {("t", 0): 1}
    scene.advance(1)
    expire(scene)
    assert len(scene.coordinator.groups) == 0


def test_offsets_of_topics_that_a_member_reads_never_expire() -> None:
    scene = Scene(GroupSettings(offsets_retention_ms=60_000))
    member = scene.stable_group(1, protocols={"range": subscription("t")})[0]
    scene.commit({("t", 0): 1, ("u", 0): 2}, member_id=member, generation_id=1)
    for _ in range(8):
        scene.advance(9_000)
        scene.heartbeat(member)
    expire(scene)
    assert scene.offsets() == {("t", 0): 1}


def test_offsets_do_not_expire_during_a_rebalance() -> None:
    scene = Scene(GroupSettings(offsets_retention_ms=1_000))
    leader, follower = scene.stable_group(2)
    scene.commit({("u", 0): 2}, member_id=leader, generation_id=1)
    scene.join(leader)
    scene.advance(2_000)
    expire(scene)
    assert scene.offsets() == {("u", 0): 2}
    scene.join(follower)


@pytest.mark.parametrize("retention_ms", [2**63 - 1, 2**62])
def test_a_commit_can_ask_to_be_kept_for_ever(retention_ms: int) -> None:
    scene = Scene(GroupSettings(offsets_retention_ms=1_000))
    assert scene.commit_error({("t", 0): 1}, retention_ms=retention_ms, version=4) == 0
    scene.advance(1000 * DAY_MS)
    expire(scene)
    assert scene.offsets() == {("t", 0): 1}


def test_a_commit_can_bring_its_own_retention() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1}, retention_ms=1_000, version=4)
    scene = scene.loaded()
    scene.advance(999)
    expire(scene)
    assert scene.offsets() == {("t", 0): 1}
    scene.advance(1)
    expire(scene)
    assert scene.offsets() == {}


def test_an_open_transaction_keeps_its_offsets_and_its_group() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1})
    key, value = commit_record(5)
    scene.coordinator.offsets.replay(key, value, record_offset=10, producer_id=7)
    scene.advance(8 * DAY_MS)
    expire(scene)
    assert scene.offsets() == {("t", 0): 1}
    scene.coordinator.end_transaction(7, committed=False)
    expire(scene)
    assert len(scene.coordinator.groups) == 0


def test_a_group_without_members_and_offsets_is_forgotten() -> None:
    scene = Scene()
    scene.join()
    expire(scene)
    assert len(scene.coordinator.groups) == 0


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    scene = Scene()
    scene.commit({("t", 0): 1}, topic_id=TOPIC_ID)
    scene.commit({("t", 1): 1})
    scene.commit({("t", 2): 1}, topic_id=OTHER_TOPIC_ID)
    scene.commit({("u", 0): 1})
    created = TopicChange("t", TOPIC_ID, deleted=False)
    assert scene.coordinator.topic_changed(created, scene.now).records == []
    deleted = TopicChange("t", TOPIC_ID, deleted=True)
    scene.carry_out(scene.coordinator.topic_changed(deleted, scene.now))
    assert scene.offsets() == {("t", 2): 1, ("u", 0): 1}
    assert scene.loaded().offsets() == {("t", 2): 1, ("u", 0): 1}
