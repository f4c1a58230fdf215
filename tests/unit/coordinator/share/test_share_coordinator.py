"""The share coordinator's rules, one by one (Kafka: ``ShareCoordinatorShardTest``)."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from millstream.coordinator.result import Instant, Result, TopicChange
from millstream.coordinator.share import coordinator as module
from millstream.coordinator.share.coordinator import ShareCoordinator, ShareCoordinatorSettings
from millstream.coordinator.share.partitioner import share_coordinator_partition
from millstream.coordinator.share.records import SHARE_SNAPSHOT, SHARE_UPDATE, decode_record
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, topic_id_from_text
from millstream.protocol.messages.share_group_state_records import (
    ShareSnapshotValue,
    ShareUpdateValue,
)
from millstream.share.state import (
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    ShareStateUpdate,
    StateBatch,
)

R = TypeVar("R")

TOPIC = TopicId(bytes(range(16)))
KEY = SharePartitionKey("group", TOPIC, 0)
OTHER = SharePartitionKey("group", TOPIC, 1)


class Scene:
    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.partition_counts: dict[TopicId, int] = {TOPIC: 2}
        self.shard = ShareCoordinator(
            ShareCoordinatorSettings(updates_per_snapshot), self.partition_counts.get
        )
        self.now_ms = 1000
        self.offset = 0
        self.records: list[Any] = []

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, 0.0)

    def run(self, result: Result[R]) -> R:
        for record in result.records:
            self.shard.replay(record, record_offset=self.offset)
            self.records.append(record)
            self.offset += 1
        assert result.response is not None
        return result.response

    def initialize(
        self, key: SharePartitionKey = KEY, state_epoch: int = 0, start_offset: int = -1
    ) -> None:
        result = self.shard.initialize(
            key, state_epoch=state_epoch, start_offset=start_offset, now=self.now
        )
        self.run(result)

    def read(self, key: SharePartitionKey = KEY, leader_epoch: int = 0) -> ShareState:
        return self.run(self.shard.read(key, leader_epoch=leader_epoch, now=self.now))

    def write(
        self,
        key: SharePartitionKey = KEY,
        *batches: StateBatch,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = -1,
        count: int = -1,
    ) -> None:
        update = ShareStateUpdate(state_epoch, leader_epoch, start_offset, count, batches)
        self.run(self.shard.write(key, update, self.now))

    @property
    def kinds(self) -> list[int]:
        return [record.key_type for record in self.records]


def refusal(operation: Any, *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        operation(*arguments, **options)
    return raised.value.error


def test_state_begins_with_a_snapshot_of_epoch_0() -> None:
    scene = Scene()
    scene.initialize(start_offset=-1)
    (record,) = scene.records
    assert record.key_type == SHARE_SNAPSHOT
    assert record.value == ShareSnapshotValue(
        snapshot_epoch=0,
        state_epoch=0,
        leader_epoch=0,
        start_offset=-1,
        delivery_complete_count=-1,
        create_timestamp=1000,
        write_timestamp=1000,
        state_batches=[],
    )


def test_a_given_start_offset_begins_the_count_of_completed_deliveries() -> None:
    scene = Scene()
    scene.initialize(start_offset=7)
    assert scene.run(scene.shard.read_summary(KEY)) == ShareStateSummary(0, 0, 7, 0)


def test_what_was_not_initialized_is_neither_read_nor_written() -> None:
    scene = Scene()
    assert refusal(scene.read) is ErrorCode.INVALID_REQUEST
    assert refusal(scene.write) is ErrorCode.INVALID_REQUEST
    assert scene.run(scene.shard.read_summary(KEY)) == ShareStateSummary(0, 0, -1, -1)


def test_a_read_makes_a_new_leader_known_and_fences_older_ones() -> None:
    scene = Scene()
    scene.initialize()
    scene.read(leader_epoch=5)
    assert scene.kinds == [SHARE_SNAPSHOT, SHARE_UPDATE]
    scene.read(leader_epoch=5)
    assert len(scene.records) == 2, "a known leader's read writes nothing"
    assert refusal(scene.read, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(scene.write, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    scene.write(leader_epoch=-1)


def test_an_older_state_epoch_is_fenced() -> None:
    scene = Scene()
    scene.initialize(state_epoch=3)
    assert refusal(scene.write, state_epoch=2) is ErrorCode.FENCED_STATE_EPOCH
    assert refusal(scene.initialize, state_epoch=2) is ErrorCode.FENCED_STATE_EPOCH
    scene.write(state_epoch=3)
    scene.write(state_epoch=-1)
    scene.initialize(state_epoch=3)


def test_state_that_is_begun_anew_forgets_batches_and_keeps_the_leader_fenced() -> None:
    scene = Scene()
    scene.initialize()
    scene.read(leader_epoch=5)
    scene.write(KEY, StateBatch(0, 9, 2, 1), leader_epoch=5)
    scene.initialize(state_epoch=1, start_offset=100)
    assert scene.run(scene.shard.read_summary(KEY)) == ShareStateSummary(1, 0, 100, 0)
    assert refusal(scene.read, leader_epoch=4) is ErrorCode.FENCED_LEADER_EPOCH
    assert scene.read(leader_epoch=5) == ShareState(1, 100, ())


def test_writes_merge_and_drop_what_lies_below_the_start_offset() -> None:
    scene = Scene()
    scene.initialize(start_offset=0)
    scene.write(KEY, StateBatch(0, 9, 0, 1), StateBatch(10, 19, 2, 1))
    scene.write(KEY, StateBatch(5, 12, 4, 2), start_offset=3, count=15)
    assert scene.read() == ShareState(
        0, 3, (StateBatch(3, 4, 0, 1), StateBatch(5, 12, 4, 2), StateBatch(13, 19, 2, 1))
    )
    assert scene.run(scene.shard.read_summary(KEY)).delivery_complete_count == 15
    update = scene.records[-1].value
    assert isinstance(update, ShareUpdateValue)
    assert (update.start_offset, len(update.state_batches)) == (3, 1)


def test_a_snapshot_follows_so_many_updates() -> None:
    scene = Scene(updates_per_snapshot=2)
    scene.initialize(start_offset=0)
    for index in range(7):
        scene.write(KEY, StateBatch(index, index, 2, 1))
    expected = [SHARE_SNAPSHOT, *([SHARE_UPDATE] * 2 + [SHARE_SNAPSHOT]) * 2, SHARE_UPDATE]
    assert scene.kinds == expected
    epochs = [record.value.snapshot_epoch for record in scene.records]
    assert epochs == [0, 0, 0, 1, 1, 1, 2, 2]
    assert scene.read().state_batches == (StateBatch(0, 6, 2, 1),)


def test_everything_before_the_oldest_snapshot_in_use_is_redundant() -> None:
    scene = Scene(updates_per_snapshot=0)
    assert scene.run(scene.shard.redundant_offset()) == -1
    scene.initialize(KEY)
    scene.initialize(OTHER)
    scene.write(KEY)
    assert scene.run(scene.shard.redundant_offset()) == 1
    scene.write(OTHER)
    assert scene.run(scene.shard.redundant_offset()) == 2
    scene.run(scene.shard.delete(KEY))
    assert scene.run(scene.shard.redundant_offset()) == 3
    scene.run(scene.shard.delete(OTHER))
    assert scene.run(scene.shard.redundant_offset()) == 5, "the last tombstone stays"


def test_cold_share_partitions_are_snapshotted_while_others_change() -> None:
    scene = Scene()
    scene.initialize(KEY)
    scene.now_ms += 300_000
    scene.initialize(OTHER)
    assert scene.run(scene.shard.snapshot_cold(scene.now)) == 1
    cold = scene.records[-1].value
    assert (cold.snapshot_epoch, cold.create_timestamp, cold.write_timestamp) == (1, 1000, 301_000)
    scene.now_ms += 300_000
    assert scene.run(scene.shard.snapshot_cold(scene.now)) == 2
    scene.now_ms += 300_000
    assert scene.run(scene.shard.snapshot_cold(scene.now)) == 0, "nothing has changed at all"


def test_a_deleted_topic_takes_its_share_partitions_along() -> None:
    scene = Scene()
    scene.initialize(KEY)
    scene.initialize(OTHER)
    created = scene.shard.topic_changed(TopicChange("t", TOPIC, deleted=False), scene.now)
    assert not created.records
    gone = scene.shard.topic_changed(TopicChange("t", TOPIC, deleted=True), scene.now)
    assert [record.value for record in gone.records] == [None, None]
    for record in gone.records:
        scene.shard.replay(record, record_offset=9)
    assert refusal(scene.read) is ErrorCode.INVALID_REQUEST


def test_what_is_not_in_the_metadata_twice_is_forgotten() -> None:
    scene = Scene()
    scene.initialize(KEY)
    del scene.partition_counts[TOPIC]
    assert scene.run(scene.shard.forget_missing_topics()) == 0
    scene.partition_counts[TOPIC] = 2
    assert scene.run(scene.shard.forget_missing_topics()) == 0
    del scene.partition_counts[TOPIC]
    assert scene.run(scene.shard.forget_missing_topics()) == 0
    assert scene.run(scene.shard.forget_missing_topics()) == 1
    assert scene.records[-1].value is None
    assert scene.run(scene.shard.forget_missing_topics()) == 0
    scene.partition_counts[TOPIC] = 2
    assert refusal(scene.read) is ErrorCode.INVALID_REQUEST


def test_deleting_what_is_not_there_succeeds_and_writes_nothing() -> None:
    scene = Scene()
    assert scene.run(scene.shard.delete(KEY)) == KEY
    assert not scene.records


def test_any_epoch_begins_a_state_anew() -> None:
    scene = Scene()
    scene.initialize(state_epoch=5, start_offset=3)
    assert refusal(scene.initialize, KEY, 4) is ErrorCode.FENCED_STATE_EPOCH
    scene.initialize(state_epoch=-1, start_offset=7)
    assert scene.read().start_offset == 7


@pytest.mark.parametrize(
    ("key", "code"),
    [
        (SharePartitionKey("g", TOPIC, -1), ErrorCode.INVALID_REQUEST),
        (SharePartitionKey("g", TOPIC, 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (SharePartitionKey("g", ZERO_TOPIC_ID, 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_partitions_that_are_not_there(key: SharePartitionKey, code: ErrorCode) -> None:
    scene = Scene()
    assert refusal(scene.initialize, key) is code
    assert refusal(scene.shard.read_summary, key) is code
    assert refusal(scene.shard.delete, key) is code


@pytest.mark.parametrize(
    "batch",
    [
        StateBatch(5, 4, 0, 1),
        StateBatch(-1, 4, 0, 1),
        StateBatch(0, 4, 5, 1),
        StateBatch(0, 4, -1, 1),
        StateBatch(0, 4, 0, -1),
    ],
)
def test_batches_that_cannot_be_are_refused(batch: StateBatch) -> None:
    scene = Scene()
    scene.initialize()
    assert refusal(scene.write, KEY, batch) is ErrorCode.INVALID_REQUEST
    assert len(scene.records) == 1


def test_a_share_partition_has_so_many_batches_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_STATE_BATCHES", 3)
    scene = Scene()
    scene.initialize()
    scene.write(KEY, *(StateBatch(offset, offset, 2, 1) for offset in (0, 2, 4)))
    many = [StateBatch(offset, offset, 2, 1) for offset in range(10, 18, 2)]
    assert refusal(scene.write, KEY, *many) is ErrorCode.INVALID_REQUEST
    assert refusal(scene.write, KEY, many[0]) is ErrorCode.INVALID_REQUEST
    scene.write(KEY, StateBatch(3, 3, 2, 1))
    scene.write(KEY, many[0], start_offset=3)


def test_records_are_read_as_they_were_written() -> None:
    scene = Scene(updates_per_snapshot=1)
    scene.initialize()
    scene.write(KEY, StateBatch(0, 3, 2, 1))
    scene.write(KEY, StateBatch(4, 5, 0, 2))
    scene.run(scene.shard.delete(KEY))
    for record in scene.records:
        assert decode_record(*record.encode()) == record
    assert decode_record((7).to_bytes(2, "big"), None) is None


def test_an_update_without_its_snapshot_is_taken_as_it_is() -> None:
    scene = Scene()
    scene.initialize()
    scene.write(KEY, StateBatch(4, 9, 2, 1), start_offset=4)
    loaded = Scene()
    loaded.shard.replay(scene.records[-1], record_offset=1)
    assert loaded.read() == ShareState(0, 4, (StateBatch(4, 9, 2, 1),))


def test_a_key_is_hashed_as_kafka_hashes_it() -> None:
    topic_id = topic_id_from_text("AAECAwQFBgcICQoLDA0ODw")
    key = SharePartitionKey("group", topic_id, 3)
    # Utils.abs("group:AAECAwQFBgcICQoLDA0ODw:3".hashCode()) % 50
    assert share_coordinator_partition(key.coordinator_key, 50) == 32
    assert refusal(share_coordinator_partition, "group", 50) is ErrorCode.INVALID_REQUEST
