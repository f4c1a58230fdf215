"""Appends what a leader has sent: runs of whole batches that carry their offsets and epochs.

Most batches are sound and go into the active segment, so they are checked and written many at a
time. Where a check stops, or a segment ends among them, they are looked at one by one. Kafka:
``UnifiedLog.appendAsFollower``.
"""

from __future__ import annotations

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, NO_LEADER_EPOCH, Offset
from millstream.records.batch import Batch, iter_batches
from millstream.records.crc32c import Buffer
from millstream.records.scan import BatchScanner
from millstream.storage.append_result import AppendResult
from millstream.storage.durability import Durability
from millstream.storage.local_log import LocalLog
from millstream.storage.log_appender import LogAppender
from millstream.storage.log_epochs import LogEpochs
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.log_producers import LogProducers
from millstream.storage.log_truncation import LogTruncation
from millstream.storage.segment import Segment


class FollowerAppender:
    """Appends to the log of a follower. ``appender`` rolls its segments; ``truncation`` lets an
    empty log begin elsewhere.
    """

    __slots__ = (
        "_appender",
        "_durability",
        "_epochs",
        "_local",
        "_offsets",
        "_producers",
        "_truncation",
    )

    def __init__(
        self,
        local: LocalLog,
        offsets: LogOffsets,
        epochs: LogEpochs,
        producers: LogProducers,
        durability: Durability,
        *,
        appender: LogAppender,
        truncation: LogTruncation,
    ) -> None:
        self._local = local
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._durability = durability
        self._appender = appender
        self._truncation = truncation

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
        offsets = self._offsets
        start = offsets.log_start_offset
        try:
            begins_inside = False
            if start == offsets.log_end_offset:
                first = next(iter_batches(view), None)
                if first is not None and first.base_offset < start < first.next_offset:
                    begins_inside = True
                    first.ensure_valid()
                    self._truncation.truncate_fully_and_start_at(first.base_offset, now_ms=now_ms)
            self._durability.settle()
            first_offset = self._append(view, now_ms)
        except OSError as error:
            raise self._local.failure(error) from error
        if begins_inside:
            offsets.update_high_watermark(start)
            self._truncation.increment_log_start_offset(start)
        return AppendResult(first_offset, offsets.log_end_offset - 1, -1, offsets.log_start_offset)

    def _append(self, view: memoryview, now_ms: int) -> Offset:
        """Append the batches in ``view``; return the first offset."""
        scanners = self._local.environment.scanners
        scanner = scanners.take()
        try:
            first_offset = self._append_scanned(view, scanner)
        finally:
            scanners.give_back(scanner)
        return self._append_one_by_one(view, now_ms) if first_offset is None else first_offset

    def _append_scanned(self, view: memoryview, scanner: BatchScanner) -> Offset | None:
        """Append all whole batches at once; None, with nothing written, where that cannot be."""
        segment = self._local.active
        segment.prepare_append()
        first_offset = self._offsets.log_end_offset
        scanner.latest_epoch = self._epochs.latest
        size = segment.scan(scanner, view, first_offset)
        if size == 0:
            return None
        if size < len(view) and next(iter_batches(view, size), None) is not None:
            return None
        for epoch, offset in scanner.epochs:
            self._epochs.begin(epoch, offset)
        segment.append_scanned(view[:size], scanner)
        self._offsets.advance_log_end(scanner.next_offset)
        self._producers.replay(segment, scanner.producer_batches)
        return first_offset

    def _append_one_by_one(self, view: memoryview, now_ms: int) -> Offset:
        batches = list(iter_batches(view))
        log_end_offset = next_offset = self._offsets.log_end_offset
        epoch = self._epochs.latest
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
        for batch in batches:
            if batch.partition_leader_epoch != self._epochs.appended:
                self._epochs.begin(batch.partition_leader_epoch, batch.base_offset)
        self._append_runs(batches, view, now_ms)
        return batches[0].base_offset if batches else log_end_offset

    def _append_runs(self, batches: list[Batch], view: memoryview, now_ms: int) -> None:
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
                segment = self._appender.roll_at(self._base_offset_for(batch), now_ms)
            run.append(batch)
            size += batch.size
        self._write_run(segment, run, view[start : start + size])

    def _base_offset_for(self, batch: Batch) -> Offset:
        """Return where a segment begins whose first batch is ``batch``: at the log end, although
        the leader's log may have been compacted before the batch. A gap between two segments is how
        recovery tells that the end of the first one is lost; a gap inside a segment tells nothing.
        """
        log_end_offset = self._offsets.log_end_offset
        fits = batch.last_offset - log_end_offset <= MAX_RELATIVE_OFFSET
        return log_end_offset if fits else batch.base_offset

    def _write_run(self, segment: Segment, run: list[Batch], data: memoryview) -> None:
        if not run:
            return
        segment.append_run(data, run)
        self._offsets.advance_log_end(run[-1].next_offset)
        self._producers.replay(segment, run)
