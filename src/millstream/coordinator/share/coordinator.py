"""The share coordinator of one partition of ``__share_group_state``: a pure state machine.

A share partition's state begins with InitializeShareGroupState. Its leader then reads it, which
makes the leader's epoch known, and writes what changes:

* a **ShareUpdate** says what has changed; after ``updates_per_snapshot`` of them
* a **ShareSnapshot** says everything, so that what was written before it is not needed any more.

A share partition that nobody writes to holds back the deletion of everything behind its snapshot;
so while others are written to, one that was not snapshotted for ``cold_snapshot_interval_ms`` is
snapshotted again (:meth:`ShareCoordinator.snapshot_cold`). The first offset that is needed is
:meth:`ShareCoordinator.redundant_offset`.

Fencing: a request with a leader epoch or state epoch below the highest that is known is refused
(FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH). An epoch of -1 in a write is not compared.

Memory: for each share partition some 500 bytes, and some 100 for each state batch, of which there
are at most :data:`MAX_STATE_BATCHES`; the deletion of a group or topic frees them. Kafka:
``ShareCoordinatorShard``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from millstream.coordinator.result import CoordinatorRecord, Instant, Result, TopicChange
from millstream.coordinator.share.persisted_state import PersistedState
from millstream.coordinator.share.records import (
    batches_of,
    decode_record,
    key_of,
    snapshot_record,
    tombstone,
    update_record,
)
from millstream.coordinator.share.state_batches import combine_batches
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.share_group_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from millstream.share.state import (
    ANY_EPOCH,
    DELIVERY_ARCHIVED,
    DELIVERY_AVAILABLE,
    NO_DELIVERY_COMPLETE_COUNT,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateSummary,
    ShareStateUpdate,
    StateBatch,
)

MAX_STATE_BATCHES: Final = 25_000
"""A leader locks 10,000 records of a share partition at most; a snapshot has to fit in a batch."""

_UNINITIALIZED_EPOCH: Final = 0


@dataclass(frozen=True, slots=True)
class ShareCoordinatorSettings:
    """``updates_per_snapshot`` is ``share.coordinator.snapshot.update.records.per.snapshot``."""

    updates_per_snapshot: int = 500
    cold_snapshot_interval_ms: int = 300_000


@dataclass(slots=True)
class _Entry:
    """A share partition: its state, the highest epochs known, updates since the snapshot."""

    state: PersistedState
    leader_epoch: int
    state_epoch: int
    update_count: int = 0


class ShareCoordinator:
    """The share partitions of one partition of ``__share_group_state``.

    ``partition_count`` returns how many partitions a topic has, None for an unknown topic.
    """

    def __init__(
        self, settings: ShareCoordinatorSettings, partition_count: Callable[[TopicId], int | None]
    ) -> None:
        self._settings = settings
        self._partition_count = partition_count
        self._entries: dict[SharePartitionKey, _Entry] = {}
        self._snapshot_offsets: dict[SharePartitionKey, int] = {}
        self._last_deletion_offset: int | None = None
        self._missing: set[SharePartitionKey] = set()
        """Those whose topic was not in the metadata at the last look."""

    # Operations

    def initialize(
        self, key: SharePartitionKey, *, state_epoch: int, start_offset: int, now: Instant
    ) -> Result[SharePartitionKey]:
        """Begin a share partition's state anew."""
        self._check_partition(key)
        entry = self._entries.get(key)
        if entry is not None and state_epoch != ANY_EPOCH and entry.state_epoch > state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        # Consumption has not begun where there is no start offset yet; from a given one on, the
        # lag is known.
        is_open = start_offset == UNINITIALIZED_START_OFFSET
        state = PersistedState(
            snapshot_epoch=0 if entry is None else entry.state.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=_UNINITIALIZED_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=NO_DELIVERY_COMPLETE_COUNT if is_open else 0,
            state_batches=(),
            create_timestamp_ms=now.wall_ms,
            write_timestamp_ms=now.wall_ms,
        )
        return Result(response=key, records=[snapshot_record(key, state)])

    def read(
        self, key: SharePartitionKey, *, leader_epoch: int, now: Instant
    ) -> Result[ShareState]:
        """Return a share partition's state; a new leader's epoch is recorded before the answer."""
        entry = self._initialized(key, "read")
        if entry.leader_epoch > leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        self._check_topic(key)
        state = entry.state
        response = ShareState(state.state_epoch, state.start_offset, state.state_batches)
        if leader_epoch in (ANY_EPOCH, entry.leader_epoch):
            return Result(response=response)
        record = self._change(
            key,
            entry,
            leader_epoch=leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            state_batches=(),
            now=now,
        )
        return Result(response=response, records=[record])

    def write(
        self, key: SharePartitionKey, update: ShareStateUpdate, now: Instant
    ) -> Result[SharePartitionKey]:
        """Store what has changed.

        INVALID_REQUEST for state batches that cannot be, or too many of them.
        """
        entry = self._initialized(key, "write")
        if update.leader_epoch != ANY_EPOCH and entry.leader_epoch > update.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        if update.state_epoch != ANY_EPOCH and entry.state_epoch > update.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        self._check_topic(key)
        _check_batches(update.state_batches)
        record = self._change(
            key,
            entry,
            leader_epoch=entry.state.leader_epoch,
            start_offset=update.start_offset,
            delivery_complete_count=update.delivery_complete_count,
            state_batches=update.state_batches,
            now=now,
        )
        return Result(response=key, records=[record])

    def read_summary(self, key: SharePartitionKey) -> Result[ShareStateSummary]:
        """Return the start offset and epochs of a share partition, also where there is none."""
        self._check_partition(key)
        self._check_topic(key)
        entry = self._entries.get(key)
        if entry is None:
            return Result(
                response=ShareStateSummary(
                    _UNINITIALIZED_EPOCH,
                    _UNINITIALIZED_EPOCH,
                    UNINITIALIZED_START_OFFSET,
                    NO_DELIVERY_COMPLETE_COUNT,
                )
            )
        state = entry.state
        return Result(
            response=ShareStateSummary(
                state.state_epoch,
                state.leader_epoch,
                state.start_offset,
                state.delivery_complete_count,
            )
        )

    def delete(self, key: SharePartitionKey) -> Result[SharePartitionKey]:
        """Forget a share partition's state; nothing happens where there is none."""
        self._check_partition(key)
        self._check_topic(key)
        records = [tombstone(key)] if key in self._entries else []
        return Result(response=key, records=records)

    # Upkeep

    def snapshot_cold(self, now: Instant) -> Result[int]:
        """Snapshot share partitions whose last snapshot is old, unless nothing at all has changed;
        return how many.
        """
        records: list[CoordinatorRecord] = []
        if any(not entry.state.is_cold for entry in self._entries.values()):
            for key, entry in self._entries.items():
                state = entry.state
                age_ms = now.wall_ms - state.write_timestamp_ms
                if age_ms >= self._settings.cold_snapshot_interval_ms:
                    newest = replace(
                        state,
                        snapshot_epoch=state.snapshot_epoch + 1,
                        write_timestamp_ms=now.wall_ms,
                    )
                    records.append(snapshot_record(key, newest))
        # One batch may not hold them all; each is complete on its own.
        return Result(response=len(records), records=records, atomic=False)

    def forget_missing_topics(self) -> Result[int]:
        """Forget share partitions of topics that were not in the metadata the last time either;
        return how many.

        They were deleted while nobody coordinated these share partitions. A topic of which this
        broker has only not heard yet is there the next time. Kafka keeps such states for good.
        """
        missing = {key for key in self._entries if self._partition_count(key.topic_id) is None}
        gone = missing & self._missing
        self._missing = missing
        records = [tombstone(key) for key in self._entries if key in gone]
        return Result(len(gone), records, atomic=False)

    def redundant_offset(self) -> Result[int]:
        """Return the first offset that is needed: everything before it may be deleted; -1 when
        nothing may. Kafka: ``ShareCoordinatorOffsetsManager``.
        """
        if self._snapshot_offsets:
            return Result(response=min(self._snapshot_offsets.values()))
        deleted = self._last_deletion_offset
        return Result(response=-1 if deleted is None else deleted)

    # The driver's part

    @property
    def next_deadline_ms(self) -> float | None:
        """Nothing here has a deadline."""
        return None

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Read a stored record; None for one that means nothing here."""
        return decode_record(key, value)

    def replay(
        self, record: CoordinatorRecord, *, record_offset: int, producer_id: int = -1
    ) -> None:
        """Apply a record that is in the log, or is about to be."""
        key, value = record.key, record.value
        if isinstance(key, ShareSnapshotKey):
            if value is None:
                self._forget(key_of(key), record_offset)
            else:
                assert isinstance(value, ShareSnapshotValue)
                self._replay_snapshot(key_of(key), value, record_offset)
        else:
            assert isinstance(key, ShareUpdateKey)
            assert isinstance(value, ShareUpdateValue)
            self._replay_update(key_of(key), value, record_offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Nothing here is written in transactions."""

    def expire(self, now: Instant) -> Result[None]:
        """Nothing here has a deadline."""
        return Result()

    def postpone(self, by_ms: float) -> None:
        """Nothing here has a deadline."""

    def topic_changed(self, change: TopicChange, now: Instant) -> Result[None]:
        """Forget the share partitions of a topic that was deleted."""
        if not change.deleted:
            return Result()
        gone = [key for key in self._entries if key.topic_id == change.topic_id]
        return Result(records=[tombstone(key) for key in gone], atomic=False)

    def on_loaded(self, now: Instant) -> Result[None]:
        """Begin to serve what the log says."""
        return Result()

    def on_suspended(self, now: Instant) -> Result[None]:
        """Nobody waits here."""
        return Result()

    def on_unloaded(self) -> Result[None]:
        """Nobody waits here."""
        return Result()

    # Inner workings

    def _change(
        self,
        key: SharePartitionKey,
        entry: _Entry,
        *,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        state_batches: tuple[StateBatch, ...],
        now: Instant,
    ) -> CoordinatorRecord:
        """Return the update, or the snapshot that is due instead."""
        changed = entry.state.updated(
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=state_batches,
        )
        if len(changed.state_batches) > MAX_STATE_BATCHES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a share partition has at most {MAX_STATE_BATCHES} state batches",
            )
        if entry.update_count < self._settings.updates_per_snapshot:
            return update_record(
                key,
                snapshot_epoch=entry.state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                state_batches=combine_batches(state_batches, start_offset=start_offset),
            )
        return snapshot_record(
            key,
            replace(
                changed,
                snapshot_epoch=changed.snapshot_epoch + 1,
                create_timestamp_ms=now.wall_ms,
                write_timestamp_ms=now.wall_ms,
            ),
        )

    def _replay_snapshot(
        self, key: SharePartitionKey, value: ShareSnapshotValue, record_offset: int
    ) -> None:
        state = PersistedState(
            snapshot_epoch=value.snapshot_epoch,
            state_epoch=value.state_epoch,
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=batches_of(value.state_batches),
            create_timestamp_ms=value.create_timestamp,
            write_timestamp_ms=value.write_timestamp,
        )
        known = self._entries.get(key)
        leader_epoch, state_epoch = state.leader_epoch, state.state_epoch
        if known is not None:
            leader_epoch = max(leader_epoch, known.leader_epoch)
            state_epoch = max(state_epoch, known.state_epoch)
        self._entries[key] = _Entry(state, leader_epoch, state_epoch)
        self._snapshot_offsets[key] = record_offset

    def _replay_update(
        self, key: SharePartitionKey, value: ShareUpdateValue, record_offset: int
    ) -> None:
        entry = self._entries.get(key)
        batches = batches_of(value.state_batches)
        if entry is None:
            # Its snapshot is gone; Kafka takes what there is.
            state = PersistedState(
                snapshot_epoch=value.snapshot_epoch,
                state_epoch=_UNINITIALIZED_EPOCH,
                leader_epoch=value.leader_epoch,
                start_offset=value.start_offset,
                delivery_complete_count=value.delivery_complete_count,
                state_batches=batches,
                create_timestamp_ms=0,
                write_timestamp_ms=0,
            )
            self._entries[key] = _Entry(state, value.leader_epoch, _UNINITIALIZED_EPOCH, 1)
            self._snapshot_offsets[key] = record_offset
            return
        entry.state = entry.state.updated(
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            delivery_complete_count=value.delivery_complete_count,
            state_batches=batches,
        )
        entry.leader_epoch = max(entry.leader_epoch, value.leader_epoch)
        entry.update_count += 1

    def _forget(self, key: SharePartitionKey, record_offset: int) -> None:
        self._entries.pop(key, None)
        self._snapshot_offsets.pop(key, None)
        self._last_deletion_offset = record_offset

    def _initialized(self, key: SharePartitionKey, operation: str) -> _Entry:
        self._check_partition(key)
        entry = self._entries.get(key)
        if entry is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{operation.capitalize()} operation on uninitialized share partition not allowed.",
            )
        return entry

    def _check_partition(self, key: SharePartitionKey) -> None:
        if key.partition < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "The partition id cannot be a negative number."
            )

    def _check_topic(self, key: SharePartitionKey) -> None:
        count = None if key.topic_id == ZERO_TOPIC_ID else self._partition_count(key.topic_id)
        if count is None or key.partition >= count:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _check_batches(batches: tuple[StateBatch, ...]) -> None:
    if len(batches) > MAX_STATE_BATCHES:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a share partition has at most {MAX_STATE_BATCHES} state batches",
        )
    for each in batches:
        if not (
            0 <= each.first_offset <= each.last_offset
            and DELIVERY_AVAILABLE <= each.delivery_state <= DELIVERY_ARCHIVED
            and each.delivery_count >= 0
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"not a state batch: {each}")
