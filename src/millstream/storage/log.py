"""The log of one partition: append, read, look up, truncate, roll, flush.

Everything here is synchronous and belongs to one thread, except :meth:`FlushPlan.run`.
Time is an argument. A disk that fails raises StorageError, and the log must not be used again.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.config.topic import TopicConfig
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.records.crc32c import Buffer
from millstream.records.validation import ProducedBatch
from millstream.storage.file_slice import FileSlice


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


class LogRead:
    """What a read found: ``records`` start with the batch that holds ``fetch_offset``; None when
    there is nothing below the upper bound (or nothing that fits).
    """

    __slots__ = ("fetch_offset", "records", "segment_base_offset")

    def __init__(
        self, fetch_offset: Offset, records: FileSlice | None, segment_base_offset: Offset
    ) -> None:
        self.fetch_offset = fetch_offset
        self.records = records
        self.segment_base_offset = segment_base_offset

    @property
    def size(self) -> int:
        """Bytes found."""
        return 0 if self.records is None else self.records.size


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by its time (ListOffsets)."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class EpochEndOffset:
    """The largest epoch at or below the one asked for and where it ends; both -1 if unknown."""

    leader_epoch: LeaderEpoch
    end_offset: Offset


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records a committed reader drops, as a Fetch response names it."""

    producer_id: int
    first_offset: Offset


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that the partition remembers (DescribeProducers)."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: Offset


class FlushPlan:
    """What to bring to disk; made on the owner's thread, run on any."""

    recovery_point: Offset

    def run(self) -> None:
        """Flush the files. Raises StorageError, which is final for the log directory."""
        raise NotImplementedError


class Log:
    """One partition's records in one directory."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose log this is."""
        raise NotImplementedError

    @property
    def topic_id(self) -> TopicId | None:
        """Id in ``partition.metadata``; None in a directory that has none."""
        raise NotImplementedError

    @property
    def directory(self) -> str:
        """Path of the partition's directory."""
        raise NotImplementedError

    @property
    def log_directory(self) -> str:
        """Path of the log directory around it (an entry of ``log.dirs``)."""
        raise NotImplementedError

    @property
    def config(self) -> TopicConfig:
        """The topic's settings in force."""
        raise NotImplementedError

    @property
    def log_start_offset(self) -> Offset:
        """First offset that can be read."""
        raise NotImplementedError

    @property
    def recovery_point(self) -> Offset:
        """Everything below is on disk for certain."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> Offset:
        """First offset that is not committed."""
        raise NotImplementedError

    @property
    def last_stable_offset(self) -> Offset:
        """First offset of the oldest open transaction below the high watermark, else that."""
        raise NotImplementedError

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next record gets."""
        raise NotImplementedError

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest leader epoch known, -1 if none."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        raise NotImplementedError

    def append_as_leader(
        self, batch: ProducedBatch, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult:
        """Append one validated batch at the log end.

        ``batch.buffer`` gets its base offset and leader epoch written in place when it is
        writable, and may be reused after the call. Kafka: ``UnifiedLog.append``.

        Raises KafkaError: OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, RECORD_LIST_TOO_LARGE; StorageError when the bytes could not be written
        (what was written of them is undone).
        """
        raise NotImplementedError

    def append_marker(
        self, buffer: Buffer, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult:
        """Append the control batch that ends a transaction (``records.control``).

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; StorageError.
        """
        raise NotImplementedError

    def append_as_follower(self, buffer: Buffer, *, now_ms: int) -> AppendResult:
        """Append whole batches that carry a leader's offsets and epochs; bytes after the last
        whole batch are left out. Raises CorruptLogError, KafkaError(OFFSET_OUT_OF_RANGE) when
        they do not follow on the log end, StorageError.
        """
        raise NotImplementedError

    def read(
        self,
        fetch_offset: Offset,
        *,
        max_bytes: int,
        upper_bound_offset: Offset,
        min_one_batch: bool,
    ) -> LogRead:
        """Refer to the bytes from the batch that holds ``fetch_offset`` up to
        ``upper_bound_offset``, which is the LEO, the high watermark or the last stable offset.

        At most ``max_bytes``, where the last batch may be cut; with ``min_one_batch`` the first is
        whole whatever its size. A read ends with its segment. Kafka: ``LocalLog.read``.
        Raises KafkaError(OFFSET_OUT_OF_RANGE) outside [log start, LEO].
        """
        raise NotImplementedError

    def aborted_transactions(self, read: LogRead) -> list[AbortedTransaction]:
        """Return the aborted transactions that a committed reader of ``read`` must know."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """Return the first record at or after ``timestamp``; None when all are older."""
        raise NotImplementedError

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp; None in a log without any."""
        raise NotImplementedError

    def end_offset_for_epoch(self, leader_epoch: LeaderEpoch) -> EpochEndOffset:
        """Return where an epoch ends (KIP-101, OffsetForLeaderEpoch)."""
        raise NotImplementedError

    def epoch_for_offset(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch in which ``offset`` was or will be written; -1 if unknown."""
        raise NotImplementedError

    def assign_epoch_start(self, leader_epoch: LeaderEpoch) -> None:
        """Note that ``leader_epoch`` begins at the log end: what a new leader does first."""
        raise NotImplementedError

    def update_high_watermark(self, offset: Offset) -> Offset:
        """Move the high watermark to ``offset``, clamped to [log start, LEO]; return it."""
        raise NotImplementedError

    def increment_log_start_offset(self, offset: Offset) -> bool:
        """Move the log start up to ``offset`` (DeleteRecords, retention); False if it is there.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) above the high watermark.
        """
        raise NotImplementedError

    def truncate_to(self, offset: Offset, *, now_ms: int) -> bool:
        """Drop everything from ``offset`` on; False when nothing is there."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: Offset, *, now_ms: int) -> None:
        """Drop everything and go on at ``offset``."""
        raise NotImplementedError

    def roll(self, *, now_ms: int) -> None:
        """Close the active segment and begin one at the log end."""
        raise NotImplementedError

    def flush_plan(self) -> FlushPlan | None:
        """Return what has to be flushed to make everything up to the log end durable; None when
        it is already.
        """
        raise NotImplementedError

    def flushed(self, plan: FlushPlan) -> None:
        """Take note that ``plan`` has run: the recovery point moves up."""
        raise NotImplementedError

    def delete_old_segments(self, *, now_ms: int) -> int:
        """Apply retention by log start, size and time; return how many segments went.

        Their files are renamed at once and removed by :meth:`remove_deleted_files`.
        """
        raise NotImplementedError

    def remove_deleted_files(self, *, now_ms: int) -> None:
        """Remove the ``.deleted`` files whose ``file.delete.delay.ms`` is over."""
        raise NotImplementedError

    def producers(self) -> list[ActiveProducer]:
        """Return the producers remembered, by id."""
        raise NotImplementedError

    def expire_producers(self, *, now_ms: int) -> None:
        """Forget producers idle for ``producer.id.expiration.ms``."""
        raise NotImplementedError

    def update_config(self, config: TopicConfig) -> None:
        """Put changed settings in force."""
        raise NotImplementedError

    def close(self, *, now_ms: int) -> None:
        """Trim the indexes, write the producer snapshot, let go of the files. Flush first."""
        raise NotImplementedError
