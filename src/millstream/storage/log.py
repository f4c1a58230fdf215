"""The log of one partition: its offsets, appends, reads, truncation and retention.

Everything here is synchronous and belongs to one thread, except ``FlushPlan.run``. Time is an
argument. A disk that fails raises StorageError, and the log must not be used again.

A log is made of parts that have a subject each: its segments (``local_log``), its offsets, its
leader epochs (``log_epochs``), its producers (``log_producers``), and what of it is on disk
(``durability``). What works on a whole log without being a part of it has a module of its own:
``follower_append``, ``log_retention``, ``log_compaction``, ``timestamp_lookup``,
``aborted_transactions``.

An append goes through these steps (Kafka: ``UnifiedLog.append``)::

    validated batch -> offsets and leader epoch -> epoch file -> maybe roll -> producer check
      -> write -> log end offset -> producer state -> transaction index
"""

from __future__ import annotations

from collections.abc import Collection

from millstream.config.topic import TopicConfig
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.batch import (
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    Batch,
    iter_batches,
)
from millstream.records.control import MARKER_BATCH_SIZE, MarkerBatch
from millstream.records.crc32c import Buffer
from millstream.storage.aborted_transactions import AbortedTransaction, aborted_transactions
from millstream.storage.directory import PARTITION_METADATA, PartitionDirectory
from millstream.storage.durability import Durability
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import replace_file
from millstream.storage.flush import FlushPlan
from millstream.storage.follower_append import append_as_follower
from millstream.storage.loader import Loader, LoadOptions, LogState
from millstream.storage.local_log import LocalLog
from millstream.storage.log_epochs import LogEpochs
from millstream.storage.log_producers import LogProducers
from millstream.storage.log_read import LogRead
from millstream.storage.log_retention import delete_old_segments
from millstream.storage.partition_metadata import format_partition_metadata
from millstream.storage.producer_state import (
    ActiveProducer,
    BatchMetadata,
    ProducerEntry,
    ProducerStateManager,
    VerificationState,
)
from millstream.storage.read_ahead import ColdReadError, ReadAhead
from millstream.storage.segment import Segment
from millstream.storage.timestamp_lookup import TimestampLookup, TimestampOffset

__all__ = [
    "AbortedTransaction",
    "ActiveProducer",
    "AppendResult",
    "EpochEndOffset",
    "FlushPlan",
    "LoadOptions",
    "Log",
    "LogRead",
    "ReadAhead",
    "TimestampLookup",
    "TimestampOffset",
    "VerificationState",
]


class AppendResult:
    """Where a batch went.

    ``log_append_time_ms`` is -1 unless the topic stamps records itself; for a duplicate it is the
    timestamp of the batch that is there already, as in Kafka.
    """

    __slots__ = (
        "base_offset",
        "duplicate",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
    )

    def __init__(
        self,
        base_offset: Offset,
        last_offset: Offset,
        log_append_time_ms: int,
        log_start_offset: Offset,
        duplicate: bool = False,
    ) -> None:
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.duplicate = duplicate


class Log:
    """One partition's records in one directory."""

    __slots__ = (
        "_producers",
        "durability",
        "epochs",
        "local",
        "offsets",
        "producer_log",
        "recovery_report",
        "topic_id",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        config: TopicConfig,
        state: LogState,
    ) -> None:
        self.durability = Durability(
            environment,
            directory,
            recovery_point=state.recovery_point,
            log_end_offset=state.offsets.log_end_offset,
        )
        """The recovery point and pending flushes."""
        self.local = LocalLog(environment, directory, config, state.segments, self.durability)
        """The segments."""
        self.offsets = state.offsets
        self.epochs = LogEpochs(environment.file_system, directory, self.durability, state.epochs)
        self.producer_log = LogProducers(
            environment, self.durability, state.producers, state.snapshots
        )
        self._producers = state.producers
        self.topic_id: TopicId | None = state.topic_id
        """Id in ``partition.metadata``; None in a directory that has none."""
        self.recovery_report = state.report
        """What recovery did when the log was opened."""

    @classmethod
    def open(
        cls,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        config: TopicConfig,
        options: LoadOptions,
    ) -> Log:
        """Open the log in ``directory``, which exists; recover it if it was not closed cleanly.

        Raises StorageError; UnsupportedFormatError on messages older than v2.
        """
        try:
            state = Loader(environment, directory, config, options).load()
        except OSError as error:
            raise StorageError(directory.parent, f"{directory.name}: {error}") from error
        log = cls(environment, directory, config, state)
        log.update_high_watermark(options.high_watermark)
        return log

    @classmethod
    def create(
        cls,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        config: TopicConfig,
        *,
        topic_id: TopicId | None,
        now_ms: int,
    ) -> Log:
        """Make a new, empty log. Raises StorageError."""
        try:
            environment.file_system.make_directory(directory.path)
        except OSError as error:
            raise StorageError(directory.parent, f"{directory.name}: {error}") from error
        log = cls.open(environment, directory, config, LoadOptions(now_ms=now_ms))
        log.durability.note_directory()
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    # What it is

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of this log."""
        return self.local.directory.topic_partition

    @property
    def directory(self) -> str:
        """Path of the partition's directory."""
        return self.local.directory.path

    @property
    def log_directory(self) -> str:
        """Path of the log directory around it (an entry of ``log.dirs``)."""
        return self.local.directory.parent

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""
        return self.local.config

    def update_config(self, config: TopicConfig) -> None:
        """Apply changed settings."""
        self.local.update_config(config)

    def assign_topic_id(self, topic_id: TopicId) -> None:
        """Write ``partition.metadata``. Raises StorageError."""
        local = self.local
        path = local.directory.file(PARTITION_METADATA)
        data = format_partition_metadata(topic_id).encode("ascii")
        try:
            replace_file(local.environment.file_system, path, data, durable=False)
        except OSError as error:
            raise self._failed(error) from error
        self.durability.note_replaced(PARTITION_METADATA)
        self.topic_id = topic_id

    # Offsets

    @property
    def log_start_offset(self) -> Offset:
        """First offset that can be read."""
        return self.offsets.log_start_offset

    @property
    def recovery_point(self) -> Offset:
        """Everything below is flushed."""
        return self.durability.recovery_point

    @property
    def high_watermark(self) -> Offset:
        """First offset that is not committed."""
        return self.offsets.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        """First offset of the oldest undecided transaction, else the high watermark."""
        return self.offsets.last_stable_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        return self.offsets.log_end_offset

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.local.segments.size

    @property
    def segment_base_offsets(self) -> list[Offset]:
        """The base offsets of the segments, ascending."""
        return self.local.segments.base_offsets

    @property
    def starts_inside_segment(self) -> bool:
        """True when the first segment's name does not tell the log start."""
        return self.offsets.log_start_offset > self.local.segments.first.base_offset

    def update_high_watermark(self, offset: Offset) -> Offset:
        """Move the high watermark to ``offset``, clamped to [log start, LEO]; return it.

        Transactions whose marker lies below it are decided, so the last stable offset may follow.
        """
        offsets = self.offsets
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
        self.offsets.set(log_start_offset, last_stable_offset, high_watermark, log_end_offset)

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Move the log start up to ``offset`` (DeleteRecords, retention); False if it is there.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark; StorageError.
        """
        offsets = self.offsets
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
            self.epochs.truncate_from_start(offset)
        except OSError as error:
            raise self._failed(error) from error
        return True

    # Epochs

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest leader epoch known, -1 if none."""
        return self.epochs.known.latest_epoch

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> EpochEndOffset:
        """Return where an epoch ends (KIP-101, OffsetForLeaderEpoch)."""
        return self.epochs.end_offset_for(leader_epoch, self.offsets.log_end_offset)

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch in which ``offset`` was or will be written; -1 if unknown."""
        return self.epochs.known.epoch_for_offset(offset)

    def assign_epoch_start(self, leader_epoch: LeaderEpoch) -> None:
        """Note that ``leader_epoch`` begins at the log end: what a new leader does first."""
        self.epochs.assign(leader_epoch, self.offsets.log_end_offset)

    # Appending

    def append_as_leader(
        self, batch: Batch, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult:
        """Append one validated batch at the log end.

        The batch gets its base offset and leader epoch; its buffer may be reused after the call.

        Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE; StorageError when the bytes could not be written
        (what was written of them is undone).
        """
        offsets = self.offsets
        base_offset = offsets.log_end_offset
        delta = batch.last_offset_delta
        last_offset = base_offset + delta
        size = batch.length + LENGTH_OVERHEAD
        max_timestamp = batch.max_timestamp
        producer_id = batch.producer_id
        transactional = batch.attributes & TRANSACTIONAL_BIT != 0
        try:
            if self.durability.blocks_append:
                self.durability.settle()
            if leader_epoch != self.epochs.appended:
                self.epochs.begin(leader_epoch, base_offset)
            segment = self.local.active
            if (
                segment.records.size + size > segment.roll_size
                or max_timestamp > segment.roll_timestamp
                or last_offset > segment.roll_offset
            ):
                segment = self._maybe_roll(size, max_timestamp, last_offset, now_ms)
            if producer_id >= 0:
                repeated = self._producers.check(
                    producer_id, batch.producer_epoch, batch.base_sequence, delta, transactional
                )
                if repeated is not None:
                    return self._duplicate(repeated)
            batch.assign(base_offset=base_offset, leader_epoch=leader_epoch)
            segment.append(batch_bytes(batch), size, last_offset, max_timestamp)
        except OSError as error:
            raise self._failed(error) from error
        offsets.advance_log_end(last_offset + 1)
        if producer_id >= 0:
            self._producers.add_batch(
                producer_id,
                batch.producer_epoch,
                BatchMetadata(batch.last_sequence, last_offset, delta, max_timestamp),
                transactional,
            )
        append_time = max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else -1
        return AppendResult(base_offset, last_offset, append_time, offsets.log_start_offset)

    def check_verified(
        self, batch: Batch, verified: VerificationState | None, *, bumps_epoch: bool
    ) -> None:
        """Check that a transactional batch may be appended, unless it is a duplicate: see
        :meth:`ProducerStateManager.check_verified`. Raises KafkaError, also as
        :meth:`append_as_leader` does.
        """
        producers = self._producers
        producer_id, epoch, base_sequence = (
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
        )
        if producers.is_in_transaction(producer_id, epoch):
            return
        known = producers.producers.get(producer_id)
        if known is not None and known.repeats(epoch, base_sequence, batch.last_offset_delta):
            return
        producers.check_verified(
            producer_id, epoch, base_sequence, verified, bumps_epoch=bumps_epoch
        )

    def append_marker(
        self,
        batch: MarkerBatch,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append the control batch that ends a transaction.

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; StorageError.
        """
        producers, marker = self._producers, batch.marker
        producer_id, producer_epoch = batch.producer_id, batch.producer_epoch
        producers.check_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=transaction_version,
        )
        offsets, timestamp_ms = self.offsets, batch.timestamp_ms
        offset = offsets.log_end_offset
        try:
            if self.durability.blocks_append:
                self.durability.settle()
            if leader_epoch != self.epochs.appended:
                self.epochs.begin(leader_epoch, offset)
            segment = self.local.active
            if (
                segment.records.size + MARKER_BATCH_SIZE > segment.roll_size
                or timestamp_ms > segment.roll_timestamp
                or offset > segment.roll_offset
            ):
                # A segment takes its first marker even where segment.bytes was made too small.
                segment = self._next_segment(MARKER_BATCH_SIZE, timestamp_ms, offset, now_ms)
            segment.append(
                batch.placed(offset, leader_epoch), MARKER_BATCH_SIZE, offset, timestamp_ms
            )
            offsets.advance_log_end(offset + 1)
            aborted = producers.add_marker(
                marker,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                offset=offset,
                timestamp=timestamp_ms,
            )
            if aborted is not None:
                segment.transaction_index.append(aborted)
        except OSError as error:
            raise self._failed(error) from error
        return AppendResult(offset, offset, -1, offsets.log_start_offset)

    def append_as_follower(self, buffer: Buffer, *, now_ms: int) -> AppendResult:
        """Append whole batches that carry a leader's offsets and epochs; bytes after the last
        whole batch are left out.

        Raises CorruptLogError for a batch that is damaged or of an older epoch than the one before
        it, and KafkaError(OFFSET_OUT_OF_RANGE) when the batches do not follow on the log end, both
        before anything is written; StorageError.

        An empty log may begin inside the first batch: the leader's log does, where records were
        deleted. The batch is kept whole, and the log start stays where it is.
        """
        view = memoryview(buffer)
        offsets = self.offsets
        start = offsets.log_start_offset
        try:
            begins_inside = False
            if start == offsets.log_end_offset:
                first = next(iter_batches(view), None)
                if first is not None and first.base_offset < start < first.next_offset:
                    begins_inside = True
                    first.ensure_valid()
                    self.truncate_fully_and_start_at(first.base_offset, now_ms=now_ms)
            self.durability.settle()
            first_offset, next_offset = append_as_follower(self, view, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        if begins_inside:
            self.update_high_watermark(start)
            self.increment_log_start_offset(start)
        return AppendResult(first_offset, next_offset - 1, -1, offsets.log_start_offset)

    def _duplicate(self, repeated: BatchMetadata) -> AppendResult:
        return AppendResult(
            repeated.base_offset,
            repeated.last_offset,
            repeated.timestamp,
            self.offsets.log_start_offset,
            duplicate=True,
        )

    # Rolling

    def _maybe_roll(
        self, size: int, max_timestamp: int, last_offset: Offset, now_ms: int
    ) -> Segment:
        if size > self.config.roll_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes exceeds segment.bytes = {self.config.roll_bytes}",
            )
        return self._next_segment(size, max_timestamp, last_offset, now_ms)

    def _next_segment(
        self, size: int, max_timestamp: int, last_offset: Offset, now_ms: int
    ) -> Segment:
        """Return the segment that a batch of ``size`` bytes goes to. Raises OSError."""
        segment = self.local.active
        segment.prepare_append()
        if segment.should_roll(
            size=size, max_timestamp=max_timestamp, last_offset=last_offset, now_ms=now_ms
        ):
            return self.roll_at(self.offsets.log_end_offset, now_ms)
        return segment

    def roll_at(self, base_offset: Offset, now_ms: int) -> Segment:
        """Close the active segment and return one that begins at ``base_offset``, at the log end or
        beyond; an empty one that is there already stays. Raises OSError.
        """
        self.durability.settle()
        if self.local.roll(base_offset, now_ms=now_ms):
            self.producer_log.write_snapshot(base_offset)
        return self.local.active

    def roll(self, *, now_ms: int) -> None:
        """Close the active segment and begin one at the log end; an empty one stays.

        Raises StorageError.
        """
        try:
            self.roll_at(self.offsets.log_end_offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error

    def skip_to(self, offset: Offset, *, now_ms: int) -> None:
        """Go on at ``offset`` in a new segment: compaction left nothing of what lay before it.

        Raises StorageError.
        """
        assert offset > self.offsets.log_end_offset
        try:
            self.roll_at(offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        self.offsets.advance_log_end(offset)

    def delete_old_segments(self, *, now_ms: int) -> int:
        """Apply retention by log start, size and time; return how many segments went.

        Their files are renamed at once and removed later (``LogManager.removals``). Raises
        StorageError.
        """
        try:
            return delete_old_segments(self, now_ms=now_ms)
        except OSError as error:
            raise self._failed(error) from error

    # Cutting

    def truncate_to(self, offset: Offset, *, now_ms: int) -> bool:
        """Drop everything from ``offset`` on; False when nothing is there. Epochs that begin at or
        beyond it are forgotten in either case.

        Raises StorageError; CorruptLogError.
        """
        assert offset >= 0
        if offset >= self.offsets.log_end_offset:
            self.epochs.forget_from(self.offsets.log_end_offset)
            return False
        try:
            if offset < self.local.segments.first.base_offset:
                self._restart_at(offset, now_ms)
                return True
            if self.begin_truncation(offset, now_ms=now_ms):
                self.durability.settle()
            self.durability.cut(offset, self.local.active)
            self.local.active.truncate_to(offset, now_ms=now_ms)
            self._cut_to(offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        return True

    def begin_truncation(self, offset: Offset, *, now_ms: int) -> bool:
        """Prepare to drop everything from ``offset`` on: drop the segments that lie beyond as a
        whole. Return True when a flush has to come before the rest (``durability``):
        :meth:`truncate_to` does without one when it is called after it, and waits for the disk
        itself when it is not. A log that is never cut is whole as it is.

        Raises StorageError; CorruptLogError.
        """
        local = self.local
        if not local.segments.first.base_offset <= offset < self.offsets.log_end_offset:
            return False
        removed = local.bases_beyond(offset)
        end = min(removed, default=self.offsets.log_end_offset)
        # First, for what the log holds of its producers may turn out to be damaged below the cut.
        self.durability.begin_cut(offset, end, removed=bool(removed))
        try:
            if removed:
                local.delete_beyond(offset, now_ms=now_ms)
                self.producer_log.drop_snapshots(removed)
                self._cut_to(end, now_ms)
            local.active.prepare_append()
        except OSError as error:
            raise self._failed(error) from error
        return self.durability.blocks_append

    def _cut_to(self, offset: Offset, now_ms: int) -> None:
        """Bring epochs, offsets and producers in line with the segments, which now end at
        ``offset``.
        """
        offsets = self.offsets
        self.epochs.truncate_from_end(offset)
        self._cut_offsets(min(offsets.log_start_offset, offset), offset)
        self.producer_log.reload(
            self.local.segments,
            log_start_offset=offsets.log_start_offset,
            log_end_offset=offset,
            now_ms=now_ms,
        )
        self.update_high_watermark(offsets.high_watermark)

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int) -> None:
        """Drop everything and go on at ``offset``; one that holds nothing and ends there keeps its
        files. Raises StorageError.
        """
        if not self.size and self.local.active.base_offset == offset == self.log_end_offset:
            self.epochs.forget_all()
            return
        try:
            self._restart_at(offset, now_ms)
        except OSError as error:
            raise self._failed(error) from error

    def _restart_at(self, offset: Offset, now_ms: int) -> None:
        self.local.restart_at(offset, now_ms=now_ms)
        self.epochs.clear()
        self.producer_log.clear(offset)
        self._cut_offsets(offset, offset)
        self.durability.cut(offset, None)

    def _cut_offsets(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        high_watermark = min(self.offsets.high_watermark, log_end_offset)
        self._set_offsets(log_start_offset, max(high_watermark, log_start_offset), log_end_offset)

    # Producers

    def producers(self) -> list[ActiveProducer]:
        """Return the producers remembered, by id."""
        return [
            ActiveProducer.of(entry)
            for entry in sorted(self._producers.producers.values(), key=lambda e: e.producer_id)
        ]

    @property
    def producer_state(self) -> ProducerStateManager:
        """Sequences and transactions, as of the log end; only :class:`Log` adds to them."""
        return self._producers

    def producer_entries(self) -> Collection[ProducerEntry]:
        """Return the producers remembered as they are; only to look at."""
        return self.producer_log.entries()

    def expire_producers(self, *, now_ms: int) -> None:
        """Forget producers idle for ``producer.id.expiration.ms``."""
        self.producer_log.expire(now_ms)

    def forget_oldest_producers(self, keep: int) -> None:
        """Forget all but the ``keep`` producers that wrote last, and those in a transaction.

        A forgotten producer may continue with any sequence, as after ``producer.id.expiration.ms``.
        """
        self._producers.forget_oldest(keep)

    # Reading

    def read(
        self,
        fetch_offset: Offset,
        *,
        max_bytes: int,
        upper_bound_offset: Offset,
        min_one_batch: bool,
        wait_for_disk: bool = True,
        with_aborted: bool = False,
    ) -> LogRead:
        """Refer to the bytes from the batch that holds ``fetch_offset`` up to
        ``upper_bound_offset``, which is the LEO, the high watermark or the last stable offset.

        At most ``max_bytes``, where the last batch may be cut; with ``min_one_batch`` the first is
        whole whatever its size. A read ends with its segment. Kafka: ``LocalLog.read``.

        With ``wait_for_disk`` False, bytes that are not in memory are returned as work for another
        thread (``LogRead.cold``), first the indexes, then the batches; the caller runs it and calls
        again. For a committed reader, ``with_aborted`` adds the transactions that it has to leave
        out; a damaged transaction index is rebuilt in the same way.

        Raises KafkaError: OFFSET_OUT_OF_RANGE outside [log start, LEO], CORRUPT_MESSAGE where the
        log is damaged; StorageError.
        """
        offsets = self.offsets
        log_end_offset = offsets.log_end_offset
        if not offsets.log_start_offset <= fetch_offset <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {fetch_offset} is not in "
                f"[{offsets.log_start_offset}, {log_end_offset}] of {self.topic_partition}",
            )
        local = self.local
        try:
            if fetch_offset >= upper_bound_offset:
                if fetch_offset == log_end_offset:
                    local.active.hint(log_end_offset, local.active.records.size)
                return LogRead(fetch_offset, None, local.active.base_offset)
            read = local.read(
                fetch_offset,
                max_bytes,
                upper_bound_offset,
                log_end_offset,
                min_one_batch,
                wait_for_disk,
            )
            if with_aborted:
                read.aborted = self.aborted_transactions(read, wait_for_disk=wait_for_disk)
        except ColdReadError as error:
            cold = ReadAhead(self.log_directory, error)
            return LogRead(fetch_offset, None, local.active.base_offset, cold)
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise self._failed(error) from error
        return read

    def aborted_transactions(
        self, read: LogRead, *, wait_for_disk: bool = True
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that a committed reader of ``read`` must know. A
        transaction index that is damaged is rebuilt from the log.

        Raises KafkaError(CORRUPT_MESSAGE) if the log is damaged as well; StorageError;
        ColdReadError if ``wait_for_disk`` is False.
        """
        if read.records is None:
            return []
        try:
            return aborted_transactions(
                self.local.environment,
                self.local.segments,
                self.producer_log.snapshots,
                fetch_offset=read.fetch_offset,
                segment_base_offset=read.segment_base_offset,
                end_position=read.records.position + read.records.size,
                log_end_offset=self.offsets.log_end_offset,
                wait_for_disk=wait_for_disk,
            )
        except CorruptLogError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        except OSError as error:
            raise self._failed(error) from error

    def look_up(
        self, lookup: TimestampLookup, *, wait_for_disk: bool = True
    ) -> TimestampOffset | ReadAhead | None:
        """Advance a look-up by time; return what it finds, None where no record is late enough.

        With ``wait_for_disk`` False, may return work that another thread has to do before this is
        called again with the same ``lookup``. Raises StorageError; CorruptLogError.
        """
        try:
            return lookup.advance(
                self.local.segments, self.offsets.log_start_offset, wait_for_disk=wait_for_disk
            )
        except ColdReadError as cold:
            return ReadAhead(self.log_directory, cold)
        except OSError as error:
            raise self._failed(error) from error

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record at or after ``timestamp``; None when all are older. It waits for
        the disk. Raises StorageError; CorruptLogError.
        """
        found = self.look_up(TimestampLookup(timestamp))
        assert not isinstance(found, ReadAhead)
        return found

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp; None in a log without any. It waits
        for the disk. Raises StorageError; CorruptLogError.
        """
        found = self.look_up(TimestampLookup(None))
        assert not isinstance(found, ReadAhead)
        return found

    # Durability

    def flush_plan(self) -> FlushPlan | None:
        """Return what has to be flushed to make everything up to the log end durable; None when
        it is already. The caller runs the plan and then calls :meth:`flushed`.
        """
        end = self.offsets.log_end_offset
        failure = self._write_due_epochs() if self.durability.recovery_point < end else None
        if failure is None and self.durability.is_flushed(end):
            return None
        return self.durability.plan(self.local.segments, end, failure)

    @property
    def has_unflushed_closed_segments(self) -> bool:
        """True when :meth:`closed_flush_plan` has something to flush."""
        return self.durability.recovery_point < self.local.active.base_offset

    def closed_flush_plan(self) -> FlushPlan | None:
        """Return what has to be flushed to make the closed segments durable, up to the active one;
        None when they are. Kafka: the flush that ``UnifiedLog.roll`` schedules.
        """
        if not self.has_unflushed_closed_segments:
            return None
        return self.durability.closed_plan(self.local.segments, self._write_due_epochs())

    def _write_due_epochs(self) -> OSError | None:
        """Write the epochs that recovery would no longer read from batches."""
        try:
            self.epochs.write_if_due()
        except OSError as error:
            return error
        return None

    def flushed(self, plan: FlushPlan) -> bool:
        """Record that ``plan`` has run: the recovery point moves up, unless (False) the log was
        cut back meanwhile.
        """
        return self.durability.flushed(plan)

    def volume_flushed(self) -> None:
        """Record that the volume has been flushed as a whole, with all that is written here."""
        self.durability.volume_flushed(self.offsets.log_end_offset)

    # The end, and other directories

    def close(self) -> FlushPlan | None:
        """Trim the indexes, write the producer snapshot, close the files; return what has to be
        flushed before the clean-shutdown marker may be written. Raises StorageError.
        """
        try:
            self.local.finish()
            self.producer_log.write_snapshot(self.offsets.log_end_offset)
            if self.size:
                self.epochs.write_if_due()
            plan = self.flush_plan()
            self.local.abandon()
        except OSError as error:
            raise self._failed(error) from error
        return plan

    def abandon(self) -> None:
        """Close the files as they are: the disk has failed, or the log is deleted."""
        self.local.abandon()

    def replace_current(self, current: Log) -> None:
        """Replace ``current``: this log, in another directory, holds the same batches. Producers
        and epochs are copied, including those that no batch has any more.

        Raises StorageError.
        """
        offsets = current.offsets
        assert self.offsets.log_end_offset == offsets.log_end_offset
        self._producers = self.producer_log.state = current._producers
        self.durability.truncated_to = current.durability.truncated_to
        self.recovery_report = current.recovery_report
        start = max(offsets.log_start_offset, self.local.segments.first.base_offset)
        self._set_offsets(start, offsets.high_watermark, offsets.log_end_offset)
        try:
            self.epochs.replace(current.epochs)
        except OSError as error:
            raise self._failed(error) from error

    def moved(self, parent: str, name: str) -> None:
        """Record that the directory was renamed."""
        self.local.directory.moved(parent, name)

    def renamed(self, name: str) -> None:
        """Record that the directory has another name now; the next flush brings it to disk."""
        self.local.directory.moved(self.local.directory.parent, name)
        self.durability.note_directory()

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(self.log_directory, f"{self.topic_partition}: {error}")


def batch_bytes(batch: Batch) -> memoryview | bytes:
    """Return the bytes of a batch as they are to be written, its assigned fields included."""
    buffer = batch.buffer
    return batch.prefix + buffer[16:] if buffer.readonly else buffer
