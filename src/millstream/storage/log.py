"""The log of one partition: how records get in and out.

Everything here is synchronous and belongs to one thread, except ``FlushPlan.run``. Time is an
argument. A disk that fails raises StorageError, and the log must not be used again.

An append goes through these steps (Kafka: ``UnifiedLog.append``)::

    validated batch -> offsets and leader epoch -> epoch file -> maybe roll -> producer check
      -> write -> log end offset -> producer state -> transaction index
"""

from __future__ import annotations

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError, StorageError
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import TopicId
from millstream.records.batch import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, Batch, iter_batches
from millstream.records.control import parse_marker
from millstream.records.crc32c import Buffer
from millstream.records.scan import BatchScanner
from millstream.storage.aborted_transactions import AbortedTransaction, aborted_transactions
from millstream.storage.directory import PartitionDirectory
from millstream.storage.environment import LogEnvironment
from millstream.storage.flush import FlushPlan
from millstream.storage.leader_epochs import EpochEndOffset
from millstream.storage.loader import Loader, LoadOptions
from millstream.storage.log_core import LogCore
from millstream.storage.log_read import LogRead
from millstream.storage.producer_recovery import replay_batch
from millstream.storage.producer_state import ActiveProducer, BatchMetadata
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


class Log(LogCore):
    """One partition's records in one directory."""

    __slots__ = ()

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
        log._local.unsynced_directory(directory.path)
        log._local.unsynced_directory(directory.parent)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

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
        offsets = self._offsets
        base_offset = offsets.log_end_offset
        delta = batch.last_offset_delta
        last_offset = base_offset + delta
        size = batch.size
        max_timestamp = batch.max_timestamp
        producer_id = batch.producer_id
        transactional = batch.attributes & TRANSACTIONAL_BIT != 0
        try:
            if leader_epoch != self._epoch_appended:
                self._begin_epoch(leader_epoch, base_offset)
            segment = self._local.active
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

    def append_marker(
        self, buffer: Buffer, *, leader_epoch: LeaderEpoch, now_ms: int
    ) -> AppendResult:
        """Append the control batch that ends a transaction (``records.control``).

        Raises KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; StorageError.
        """
        batch = Batch(memoryview(bytearray(buffer)))
        marker = parse_marker(batch)
        assert marker is not None, "only markers that end transactions are appended here"
        self._producers.check_marker(
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
        )
        offset = self._offsets.log_end_offset
        batch.assign(base_offset=offset, leader_epoch=leader_epoch)
        try:
            if leader_epoch != self._epoch_appended:
                self._begin_epoch(leader_epoch, offset)
            self._append_run([batch], batch.buffer, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        return AppendResult(offset, offset, -1, self._offsets.log_start_offset)

    def append_as_follower(self, buffer: Buffer, *, now_ms: int) -> AppendResult:
        """Append whole batches that carry a leader's offsets and epochs; bytes after the last
        whole batch are left out.

        Raises CorruptLogError for a batch that is damaged or of an older epoch than the one before
        it, and KafkaError(OFFSET_OUT_OF_RANGE) when the batches do not follow on the log end, both
        before anything is written; StorageError.

        An empty log may begin inside the first batch: the leader's log does, where records were
        deleted. The batch is kept whole, and the log start stays where it is.

        Most batches are sound and go into the active segment, so they are checked and written many
        at a time. Where a check stops, or a segment ends among them, they are looked at one by one.
        """
        view = memoryview(buffer)
        offsets = self._offsets
        if offsets.log_start_offset == offsets.log_end_offset:
            first = next(iter_batches(view), None)
            if first is not None and first.base_offset < offsets.log_end_offset < first.next_offset:
                return self._append_around_start(first, view, now_ms)
        return self._append_as_follower(view, now_ms)

    def _append_around_start(self, first: Batch, view: memoryview, now_ms: int) -> AppendResult:
        start = self._offsets.log_start_offset
        first.ensure_valid()
        self.truncate_fully_and_start_at(first.base_offset, now_ms=now_ms)
        result = self._append_as_follower(view, now_ms)
        self.update_high_watermark(start)
        self.increment_log_start_offset(start)
        return result

    def _append_as_follower(self, view: memoryview, now_ms: int) -> AppendResult:
        scanners = self._local.environment.scanners
        scanner = scanners.take()
        try:
            result = self._append_scanned(view, scanner)
        except OSError as error:
            raise self._failed(error) from error
        finally:
            scanners.give_back(scanner)
        return self._append_one_by_one(view, now_ms) if result is None else result

    def _append_scanned(self, view: memoryview, scanner: BatchScanner) -> AppendResult | None:
        """Append all whole batches at once; None, with nothing written, where that cannot be."""
        segment = self._local.active
        segment.prepare_append()
        offsets, epochs = self._offsets, self._epochs
        first_offset = offsets.log_end_offset
        scanner.latest_epoch = epochs.latest_epoch
        size = segment.scan(scanner, view, first_offset)
        if size == 0:
            return None
        if size < len(view) and next(iter_batches(view, size), None) is not None:
            return None
        for epoch, offset in scanner.epochs:
            self._begin_epoch(epoch, offset)
        segment.append_scanned(view[:size], scanner)
        offsets.advance_log_end(scanner.next_offset)
        self._replay(segment, scanner.producer_batches)
        return AppendResult(first_offset, scanner.next_offset - 1, -1, offsets.log_start_offset)

    def _append_one_by_one(self, view: memoryview, now_ms: int) -> AppendResult:
        batches = list(iter_batches(view))
        first_offset = next_offset = self._offsets.log_end_offset
        epoch = self._epochs.latest_epoch
        for batch in batches:
            batch.ensure_valid()
            if NO_LEADER_EPOCH < batch.partition_leader_epoch < epoch:
                raise CorruptLogError(
                    f"a batch of epoch {batch.partition_leader_epoch} follows on epoch {epoch}"
                )
            epoch = max(epoch, batch.partition_leader_epoch)
            if batch.base_offset < next_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"a batch at offset {batch.base_offset} does not follow on {next_offset}",
                )
            next_offset = batch.next_offset
        try:
            for batch in batches:
                if batch.partition_leader_epoch != self._epoch_appended:
                    self._begin_epoch(batch.partition_leader_epoch, batch.base_offset)
            self._append_run(batches, view, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        if batches:
            first_offset = batches[0].base_offset
        return AppendResult(first_offset, next_offset - 1, -1, self._offsets.log_start_offset)

    def _append_run(self, batches: list[Batch], view: memoryview, now_ms: int) -> None:
        """Write batches that lie one after the other in ``view``, at once where they go into the
        same segment.
        """
        run: list[Batch] = []
        start = size = 0
        segment = self._local.active
        segment.prepare_append()
        for batch in batches:
            if segment.should_roll(
                size=size + batch.size,
                max_timestamp=batch.max_timestamp,
                last_offset=batch.last_offset,
                now_ms=now_ms,
            ):
                self._write_run(segment, run, view[start : start + size])
                start, size, run = start + size, 0, []
                segment = self._roll(max(batch.base_offset, self.log_end_offset), now_ms)
            run.append(batch)
            size += batch.size
        self._write_run(segment, run, view[start : start + size])

    def _write_run(self, segment: Segment, run: list[Batch], data: memoryview) -> None:
        if not run:
            return
        segment.append_run(data, run)
        self._offsets.advance_log_end(run[-1].next_offset)
        self._replay(segment, run)

    def _replay(self, segment: Segment, batches: list[Batch]) -> None:
        """Take note of what producers wrote in batches that are in the log."""
        for batch in batches:
            aborted = replay_batch(self._producers, batch)
            if aborted is not None:
                segment.transaction_index.append(aborted)

    def _maybe_roll(
        self, size: int, max_timestamp: int, last_offset: Offset, now_ms: int
    ) -> Segment:
        if size > self.config.roll_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"a batch of {size} bytes exceeds segment.bytes = {self.config.roll_bytes}",
            )
        segment = self._local.active
        segment.prepare_append()
        if segment.should_roll(
            size=size, max_timestamp=max_timestamp, last_offset=last_offset, now_ms=now_ms
        ):
            return self._roll(self._offsets.log_end_offset, now_ms)
        return segment

    def _duplicate(self, repeated: BatchMetadata) -> AppendResult:
        return AppendResult(
            repeated.base_offset,
            repeated.last_offset,
            repeated.timestamp,
            self._offsets.log_start_offset,
            duplicate=True,
        )

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

        Not to ``wait_for_disk`` leaves what is not in memory to the caller to read ahead
        (``LogRead.cold``) before it asks again: after the indexes come the batches. For a committed
        reader, ``with_aborted`` adds the transactions that it has to leave out; a transaction index
        that is damaged is made anew, which is left to the caller in the same way.

        Raises KafkaError: OFFSET_OUT_OF_RANGE outside [log start, LEO], CORRUPT_MESSAGE where the
        log is damaged; StorageError.
        """
        offsets = self._offsets
        log_end_offset = offsets.log_end_offset
        if not offsets.log_start_offset <= fetch_offset <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {fetch_offset} is not in "
                f"[{offsets.log_start_offset}, {log_end_offset}] of {self.topic_partition}",
            )
        local = self._local
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
        transaction index that is damaged is made anew from the log.

        Raises KafkaError(CORRUPT_MESSAGE) where the log is damaged as well; StorageError; not to
        ``wait_for_disk``, ColdReadError.
        """
        if read.records is None:
            return []
        try:
            return aborted_transactions(
                self._local.environment,
                self._local.segments,
                self._snapshots,
                fetch_offset=read.fetch_offset,
                segment_base_offset=read.segment_base_offset,
                end_position=read.records.position + read.records.size,
                log_end_offset=self._offsets.log_end_offset,
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

        Not to ``wait_for_disk`` returns what another thread has to do before this is called again
        with the same ``lookup``. Raises StorageError; CorruptLogError.
        """
        try:
            return lookup.advance(
                self._local.segments, self._offsets.log_start_offset, wait_for_disk=wait_for_disk
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

    # Producers

    def producers(self) -> list[ActiveProducer]:
        """Return the producers remembered, by id."""
        return [
            ActiveProducer.of(entry)
            for entry in sorted(self._producers.producers.values(), key=lambda e: e.producer_id)
        ]


def batch_bytes(batch: Batch) -> memoryview | bytes:
    """Return the bytes of a batch as they are to be written, its assigned fields included."""
    buffer = batch.buffer
    return batch.prefix + buffer[16:] if buffer.readonly else buffer
