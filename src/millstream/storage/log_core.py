"""What a log is, where it begins and ends, and what moves these ends but for an append.

``log.Log`` adds how records get in and out. Kafka: ``UnifiedLog``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from millstream.config.topic import TopicConfig
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.directory import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PartitionDirectory,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import replace_file
from millstream.storage.flush import FlushPlan
from millstream.storage.leader_epochs import EpochEndOffset, write_leader_epochs
from millstream.storage.loader import LogState
from millstream.storage.local_log import LocalLog
from millstream.storage.partition_metadata import format_partition_metadata
from millstream.storage.producer_recovery import replay_log, restore_snapshot
from millstream.storage.producer_state import ProducerEntry
from millstream.storage.retention import RetentionRules, count_deletable
from millstream.storage.segment import Segment

NEVER_TRUNCATED: Final[Offset] = 2**63 - 1

NOT_LOOKED: Final[LeaderEpoch] = -2
"""No batch has this epoch."""


class LogCore:
    """State and upkeep of one partition's log."""

    __slots__ = (
        "_cuts",
        "_epoch_appended",
        "_epochs",
        "_epochs_unwritten",
        "_local",
        "_offsets",
        "_producers",
        "_snapshots",
        "local",
        "recovery_report",
        "topic_id",
        "truncated_to",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        config: TopicConfig,
        state: LogState,
    ) -> None:
        self.local = self._local = LocalLog(environment, directory, config, state.segments)
        """The segments, for compaction, which reads the closed ones and replaces them."""
        self._offsets = state.offsets
        self._producers = state.producers
        self._snapshots = state.snapshots
        self._epochs = state.epochs
        self._epochs_unwritten = False
        """True while the file lacks an epoch that is known."""
        self._epoch_appended: LeaderEpoch = NOT_LOOKED
        """The epoch of the last batch: another one has to be looked at before it is appended."""
        self.topic_id: TopicId | None = state.topic_id
        """Id in ``partition.metadata``; None in a directory that has none."""
        self.recovery_report = state.report
        """What recovery did when the log was opened."""
        self._cuts = 0  # what was flushed before a cut may not lie there now
        self.truncated_to: Offset = NEVER_TRUNCATED
        """The lowest log end since the cleaner last looked: its checkpoint follows."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose log this is."""
        return self._local.directory.topic_partition

    @property
    def directory(self) -> str:
        """Path of the partition's directory."""
        return self._local.directory.path

    @property
    def log_directory(self) -> str:
        """Path of the log directory around it (an entry of ``log.dirs``)."""
        return self._local.directory.parent

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""
        return self._local.config

    @property
    def log_start_offset(self) -> Offset:
        """First offset that can be read."""
        return self._offsets.log_start_offset

    @property
    def recovery_point(self) -> Offset:
        """Everything below is on disk for certain."""
        return self._offsets.recovery_point

    @property
    def high_watermark(self) -> Offset:
        """First offset that is not committed."""
        return self._offsets.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """First offset of the oldest undecided transaction, else the high watermark."""
        return self._offsets.last_stable_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self._offsets.log_end_offset

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest leader epoch known, -1 if none."""
        return self._epochs.latest_epoch

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._local.segments.size

    @property
    def segment_base_offsets(self) -> list[Offset]:
        """The base offsets of the segments, ascending."""
        return self._local.segments.base_offsets

    @property
    def starts_inside_segment(self) -> bool:
        """True when the first segment's name does not tell the log start."""
        return self._offsets.log_start_offset > self._local.segments.first.base_offset

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write ``partition.metadata``. Raises StorageError."""
        local = self._local
        path = local.directory.file(PARTITION_METADATA)
        data = format_partition_metadata(topic_id).encode("ascii")
        try:
            replace_file(local.environment.file_system, path, data, durable=False)
        except OSError as error:
            raise self._failed(error) from error
        local.unsynced(path)
        self.topic_id = topic_id

    def update_config(self, config: TopicConfig) -> None:
        """Put changed settings in force."""
        self._local.update_config(config)

    # Epochs

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> EpochEndOffset:
        """Return where an epoch ends (KIP-101, OffsetForLeaderEpoch)."""
        return self._epochs.end_offset_for(leader_epoch, self._offsets.log_end_offset)

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch in which ``offset`` was or will be written; -1 if unknown."""
        return self._epochs.epoch_for_offset(offset)

    def assign_epoch_start(self, leader_epoch: LeaderEpoch) -> None:
        """Note that ``leader_epoch`` begins at the log end: what a new leader does first.

        Nothing is written: a broker that elects a thousand leaders makes no thousand files. An
        epoch without a batch is forgotten when a log is opened in any case.
        """
        if leader_epoch >= 0 and self._epochs.assign(leader_epoch, self._offsets.log_end_offset):
            self._epochs_unwritten = True
            self._epoch_appended = NOT_LOOKED

    def _begin_epoch(self, leader_epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Take note that a batch of another epoch than the last one's is about to be appended.

        A file that is there follows at once. The first one is made with the next flush: until then
        recovery reads the whole log, and takes the epochs from its batches.
        """
        if leader_epoch >= 0 and self._epochs.assign(leader_epoch, start_offset):
            self._epochs_unwritten = True
        if self._epochs_unwritten:
            local = self._local
            path = local.directory.file(LEADER_EPOCH_CHECKPOINT)
            if local.environment.file_system.exists(path):
                self._write_epochs()
        self._epoch_appended = leader_epoch

    def _write_epochs(self) -> None:
        self._epochs_unwritten = False
        self._epoch_appended = NOT_LOOKED
        local = self._local
        local.unsynced(
            write_leader_epochs(local.environment.file_system, local.directory, self._epochs)
        )

    # Offsets

    def update_high_watermark(self, offset: Offset) -> Offset:
        """Move the high watermark to ``offset``, clamped to [log start, LEO]; return it.

        Transactions whose marker lies below it are decided, so the last stable offset may follow.
        """
        offsets = self._offsets
        if offset > offsets.log_end_offset:
            offset = offsets.log_end_offset
        elif offset < offsets.log_start_offset:
            offset = offsets.log_start_offset
        producers = self._producers
        if producers.has_undecided:
            producers.committed_up_to(offset)
            self._set_offsets(offsets.log_start_offset, offset, offsets.log_end_offset)
        else:
            offsets.commit(offset)
        return offset

    def _set_offsets(
        self, log_start_offset: Offset, high_watermark: Offset, log_end_offset: Offset
    ) -> None:
        unstable = self._producers.first_unstable_offset
        last_stable_offset = high_watermark
        if unstable is not None and unstable < high_watermark:
            last_stable_offset = max(unstable, log_start_offset)
        self._offsets.set(
            log_start_offset,
            min(self._offsets.recovery_point, log_end_offset),
            last_stable_offset,
            high_watermark,
            log_end_offset,
        )

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Move the log start up to ``offset`` (DeleteRecords, retention); False if it is there.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark; StorageError.
        """
        offsets = self._offsets
        if offset > offsets.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the log start cannot move to {offset}, beyond the high watermark "
                f"{offsets.high_watermark}",
            )
        if offset <= offsets.log_start_offset:
            return False
        self._set_offsets(offset, offsets.high_watermark, offsets.log_end_offset)
        try:
            if self._epochs.truncate_from_start(offset):
                self._write_epochs()
        except OSError as error:
            raise self._failed(error) from error
        return True

    # Cutting

    def truncate_to(self, offset: Offset, *, now_ms: int) -> bool:
        """Drop everything from ``offset`` on; False when nothing is there. Epochs that begin at or
        beyond it are forgotten in either case.

        Raises StorageError; CorruptLogError.
        """
        assert offset >= 0
        try:
            if offset >= self._offsets.log_end_offset:
                if self._epochs.truncate_from_end(self._offsets.log_end_offset):
                    self._epochs_unwritten = True
                    self._epoch_appended = NOT_LOOKED
                return False
            if offset < self._local.segments.first.base_offset:
                self._restart_at(offset, now_ms)
                return True
            for base_offset in self._local.truncate_to(offset, now_ms=now_ms):
                self._snapshots.remove(base_offset)
            if self._epochs.truncate_from_end(offset):
                self._write_epochs()
            self._cut_offsets(min(self._offsets.log_start_offset, offset), offset)
            self._reload_producers(now_ms)
        except OSError as error:
            raise self._failed(error) from error
        return True

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int) -> None:
        """Drop everything and go on at ``offset``; one that holds nothing and ends there keeps its
        files. Raises StorageError.
        """
        if not self.size and self._local.active.base_offset == offset == self.log_end_offset:
            self._epochs_unwritten |= self._epochs.clear()
            self._epoch_appended = NOT_LOOKED
            return
        try:
            self._restart_at(offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error

    def _restart_at(self, offset: Offset, now_ms: int) -> None:
        self._local.restart_at(offset, now_ms=now_ms)
        if self._epochs.clear():
            self._write_epochs()
        self._producers.clear()
        self._snapshots.keep(above=offset, up_to=offset)
        self._cut_offsets(offset, offset)

    def _cut_offsets(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        self._cuts += 1
        self.truncated_to = min(self.truncated_to, log_end_offset)
        high_watermark = min(self._offsets.high_watermark, log_end_offset)
        self._set_offsets(log_start_offset, max(high_watermark, log_start_offset), log_end_offset)

    def _reload_producers(self, now_ms: int) -> None:
        local, offsets = self._local, self._offsets
        start = restore_snapshot(
            self._producers,
            self._snapshots,
            local.environment,
            log_start_offset=offsets.log_start_offset,
            up_to=offsets.log_end_offset,
            now_ms=now_ms,
        )
        replay_log(self._producers, local.segments, start, offsets.log_end_offset)
        self.update_high_watermark(offsets.high_watermark)

    # Segments

    def roll(self, *, now_ms: int) -> None:
        """Close the active segment and begin one at the log end; an empty one stays.

        Raises StorageError.
        """
        try:
            self._roll(self._offsets.log_end_offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error

    def skip_to(self, offset: Offset, *, now_ms: int) -> None:
        """Go on at ``offset`` in a new segment: compaction left nothing of what lay before it.

        Raises StorageError.
        """
        assert offset > self._offsets.log_end_offset
        try:
            self._roll(offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        self._offsets.advance_log_end(offset)

    def _roll(self, base_offset: Offset, now_ms: int) -> Segment:
        if self._local.roll(base_offset, now_ms=now_ms):
            self._write_snapshot(base_offset)
        return self._local.active

    def _write_snapshot(self, offset: Offset) -> None:
        if path := self._snapshots.write(offset, self._producers.producers.values()):
            self._local.unsynced(path)

    def delete_old_segments(self, *, now_ms: int) -> int:
        """Apply retention by log start, size and time; return how many segments went.

        Their files are renamed at once and removed later (``LogManager.removals``). Raises
        StorageError.
        """
        config, offsets = self.config, self._offsets
        rules = RetentionRules(
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            deletes=config.deletes,
        )
        try:
            if not self._local.oldest_may_go(offsets.log_start_offset, now_ms):
                return 0
            count = count_deletable(
                self._local.ages(offsets.log_end_offset),
                rules,
                log_start_offset=offsets.log_start_offset,
                committed_offset=offsets.last_stable_offset,
                now_ms=now_ms,
            )
            if count == 0:
                return 0
            if count == len(self._local.segments):
                self._roll(offsets.log_end_offset, now_ms)
            new_start = self._local.segments.base_offsets[count]
            self.increment_log_start_offset(new_start)
            for base_offset in self._local.delete_first(count, now_ms=now_ms):
                self._snapshots.remove(base_offset)
        except OSError as error:
            raise self._failed(error) from error
        return count

    # Producers

    def producer_entries(self) -> Collection[ProducerEntry]:
        """Return the producers remembered as they are; only to look at."""
        return self._producers.producers.values()

    def drop_snapshot(self, offset: Offset) -> None:
        """Remove a producer snapshot whose segment is gone. Raises OSError."""
        self._snapshots.remove(offset)

    def expire_producers(self, *, now_ms: int) -> None:
        """Forget producers idle for ``producer.id.expiration.ms``."""
        self._producers.expire(now_ms, self._local.environment.producer_id_expiration_ms)

    def forget_oldest_producers(self, keep: int) -> None:
        """Forget all but the ``keep`` producers that wrote last, and those in a transaction.

        One that is forgotten may go on with any sequence, as after ``producer.id.expiration.ms``.
        """
        self._producers.forget_oldest(keep)

    # Durability

    def flush_plan(self) -> FlushPlan | None:
        """Return what has to be flushed to make everything up to the log end durable; None when
        it is already. A plan has to be run, and told to :meth:`flushed`.
        """
        offsets = self._offsets
        failure: OSError | None = None
        if self._epochs_unwritten and offsets.recovery_point < offsets.log_end_offset:
            try:
                self._write_epochs()
            except OSError as error:
                failure = error
        plan = self._local.flush_plan(offsets.recovery_point, offsets.log_end_offset, failure)
        if plan is not None:
            plan.cuts = self._cuts
        return plan

    def flushed(self, plan: FlushPlan) -> bool:
        """Take note that ``plan`` has run: the recovery point moves up, unless (False) the log was
        cut back meanwhile.
        """
        if plan.cuts != self._cuts:
            return False
        self._offsets.recovery_point = max(self._offsets.recovery_point, plan.recovery_point)
        return True

    def volume_flushed(self) -> None:
        """Take note that the volume has been flushed as a whole, with all that is written here."""
        self._offsets.recovery_point = self._offsets.log_end_offset
        self._local.volume_flushed()

    def close(self) -> FlushPlan | None:
        """Trim the indexes, write the producer snapshot, let go of the files; return what has to
        be flushed before the clean-shutdown marker may be written. Raises StorageError.
        """
        try:
            self._local.finish()
            self._write_snapshot(self._offsets.log_end_offset)
            if self._epochs_unwritten and self._local.segments.size:
                self._write_epochs()
            plan = self.flush_plan()
            self._local.abandon()
        except OSError as error:
            raise self._failed(error) from error
        return plan

    def abandon(self) -> None:
        """Let go of the files as they are: the disk has failed, or the log is deleted."""
        self._local.abandon()

    def take_place_of(self, current: LogCore) -> None:
        """Be what ``current`` was: this log, in another directory, holds the same batches to the
        last. Producers and epochs are taken over, those included that stand in no batch any more.

        Raises StorageError.
        """
        offsets = current._offsets
        assert self._offsets.log_end_offset == offsets.log_end_offset
        self._producers = current._producers
        self._epochs = current._epochs
        self.recovery_report = current.recovery_report
        start = max(offsets.log_start_offset, self._local.segments.first.base_offset)
        self._set_offsets(start, offsets.high_watermark, offsets.log_end_offset)
        try:
            self._write_epochs()
        except OSError as error:
            raise self._failed(error) from error

    def moved(self, parent: str, name: str) -> None:
        """Take note that the directory was renamed."""
        self._local.directory.moved(parent, name)

    def renamed(self, name: str) -> None:
        """Take note that the directory has another name now; the next flush brings it to disk."""
        local = self._local
        local.directory.moved(local.directory.parent, name)
        local.unsynced_directory(local.directory.parent)
        local.unsynced_directory(local.directory.path)

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(self.log_directory, f"{self.topic_partition}: {error}")
