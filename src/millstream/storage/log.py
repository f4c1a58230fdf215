"""The log of one partition in one directory: opened, made, flushed, closed, and its parts.

Everything here is synchronous and belongs to one thread, except ``FlushPlan.run``. Time is an
argument. A disk that fails raises StorageError, and the log must not be used again.

What a log keeps, and what works on it, is cut by subject; each of these has an attribute of
:class:`Log`, and a caller asks the one that it means::

    local              segments and their files      (LocalLog)
    offsets            log start, last stable, high watermark, log end   (LogOffsets)
    epochs             leader epochs                 (LogEpochs)
    producers          sequences and transactions    (LogProducers)
    durability         what of all this is on disk   (Durability)

    appender           appends as leader, rolls      (LogAppender)
    follower_appender  appends what a leader sent    (FollowerAppender)
    reader             reads, look-ups by time       (LogReader)
    truncation         drops records at either end   (LogTruncation)

``log_retention`` and ``log_compaction`` apply a policy to a log from outside. Kafka:
``UnifiedLog`` over ``LocalLog`` and ``LogSegments``.
"""

from __future__ import annotations

from millstream.config.topic import TopicConfig
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import StorageError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.storage.aborted_transactions import AbortedTransaction
from millstream.storage.append_result import AppendResult
from millstream.storage.directory import PARTITION_METADATA, PartitionDirectory
from millstream.storage.durability import Durability
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import replace_file
from millstream.storage.flush import FlushPlan
from millstream.storage.follower_appender import FollowerAppender
from millstream.storage.loader import Loader, LoadOptions, LogState
from millstream.storage.local_log import LocalLog
from millstream.storage.log_appender import LogAppender
from millstream.storage.log_epochs import LogEpochs
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.log_producers import LogProducers
from millstream.storage.log_read import LogRead
from millstream.storage.log_reader import LogReader
from millstream.storage.log_truncation import LogTruncation
from millstream.storage.partition_metadata import format_partition_metadata
from millstream.storage.producer_state import ActiveProducer, VerificationState
from millstream.storage.read_ahead import ReadAhead
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


class Log:
    """One partition's records in one directory."""

    __slots__ = (
        "_follower_appender",
        "_truncation",
        "appender",
        "durability",
        "epochs",
        "local",
        "offsets",
        "producers",
        "reader",
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
        self.producers = LogProducers(
            environment, self.durability, state.producers, state.snapshots
        )
        self.appender = LogAppender(*self._parts)
        self.reader = LogReader(self.local, self.offsets, state.snapshots)
        self._truncation: LogTruncation | None = None
        self._follower_appender: FollowerAppender | None = None
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
        log.offsets.update_high_watermark(options.high_watermark)
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

    # What works on it

    @property
    def _parts(self) -> tuple[LocalLog, LogOffsets, LogEpochs, LogProducers, Durability]:
        return self.local, self.offsets, self.epochs, self.producers, self.durability

    @property
    def truncation(self) -> LogTruncation:
        """Drops records at either end. Made at first use: most logs of a broker are quiet."""
        if self._truncation is None:
            self._truncation = LogTruncation(*self._parts)
        return self._truncation

    @property
    def follower_appender(self) -> FollowerAppender:
        """Appends what a leader has sent. Made at first use."""
        if self._follower_appender is None:
            self._follower_appender = FollowerAppender(
                *self._parts, appender=self.appender, truncation=self.truncation
            )
        return self._follower_appender

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
            raise self.local.failure(error) from error
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
            self.producers.write_snapshot(self.offsets.log_end_offset)
            if self.size:
                self.epochs.write_if_due()
            plan = self.flush_plan()
            self.local.abandon()
        except OSError as error:
            raise self.local.failure(error) from error
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
        self.producers.state.take_over(current.producers.state)
        self.durability.truncated_to = current.durability.truncated_to
        self.recovery_report = current.recovery_report
        self.offsets.take_over(offsets, first_offset=self.local.segments.first.base_offset)
        try:
            self.epochs.replace(current.epochs)
        except OSError as error:
            raise self.local.failure(error) from error

    def moved(self, parent: str, name: str) -> None:
        """Record that the directory was renamed."""
        self.local.directory.moved(parent, name)
