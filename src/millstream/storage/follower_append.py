"""Appends what a leader has sent: runs of whole batches that carry their offsets and epochs.

Most batches are sound and go into the active segment, so they are checked and written many at a
time. Where a check stops, or a segment ends among them, they are looked at one by one. Kafka:
``UnifiedLog.appendAsFollower``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, NO_LEADER_EPOCH, Offset
from millstream.records.batch import Batch, iter_batches
from millstream.records.scan import BatchScanner
from millstream.storage.segment import Segment

if TYPE_CHECKING:
    from millstream.storage.log import Log


def append_as_follower(log: Log, view: memoryview, now_ms: int) -> tuple[Offset, Offset]:
    """Append the batches in ``view``, see ``Log.append_as_follower``; return the first offset and
    the one after the last. Raises OSError as well.
    """
    scanners = log.local.environment.scanners
    scanner = scanners.take()
    try:
        appended = _append_scanned(log, view, scanner)
    finally:
        scanners.give_back(scanner)
    return _append_one_by_one(log, view, now_ms) if appended is None else appended


def _append_scanned(
    log: Log, view: memoryview, scanner: BatchScanner
) -> tuple[Offset, Offset] | None:
    """Append all whole batches at once; None, with nothing written, where that cannot be."""
    segment = log.local.active
    segment.prepare_append()
    first_offset = log.log_end_offset
    scanner.latest_epoch = log.latest_epoch
    size = segment.scan(scanner, view, first_offset)
    if size == 0:
        return None
    if size < len(view) and next(iter_batches(view, size), None) is not None:
        return None
    for epoch, offset in scanner.epochs:
        log.epochs.begin(epoch, offset)
    segment.append_scanned(view[:size], scanner)
    log.offsets.advance_log_end(scanner.next_offset)
    log.producer_log.replay(segment, scanner.producer_batches)
    return first_offset, scanner.next_offset


def _append_one_by_one(log: Log, view: memoryview, now_ms: int) -> tuple[Offset, Offset]:
    batches = list(iter_batches(view))
    next_offset = log.log_end_offset
    epoch = log.latest_epoch
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
        if batch.partition_leader_epoch != log.epochs.appended:
            log.epochs.begin(batch.partition_leader_epoch, batch.base_offset)
    first_offset = batches[0].base_offset if batches else next_offset
    append_run(log, batches, view, now_ms)
    return first_offset, next_offset


def append_run(log: Log, batches: list[Batch], view: memoryview, now_ms: int) -> None:
    """Write batches that lie one after the other in ``view``, at once where they go into the same
    segment. Raises OSError.
    """
    run: list[Batch] = []
    start = size = 0
    segment = log.local.active
    segment.prepare_append()
    for batch in batches:
        if segment.should_roll(
            size=size + batch.size,
            max_timestamp=batch.max_timestamp,
            last_offset=batch.last_offset,
            now_ms=now_ms,
        ):
            _write_run(log, segment, run, view[start : start + size])
            start, size, run = start + size, 0, []
            segment = log.roll_at(_base_offset_for(log, batch), now_ms)
        run.append(batch)
        size += batch.size
    _write_run(log, segment, run, view[start : start + size])


def _base_offset_for(log: Log, batch: Batch) -> Offset:
    """Return where a segment begins whose first batch is ``batch``: at the log end, although the
    leader's log may have been compacted before the batch. A gap between two segments is how
    recovery tells that the end of the first one is lost; a gap inside a segment tells nothing.
    """
    fits = batch.last_offset - log.log_end_offset <= MAX_RELATIVE_OFFSET
    return log.log_end_offset if fits else batch.base_offset


def _write_run(log: Log, segment: Segment, run: list[Batch], data: memoryview) -> None:
    if not run:
        return
    segment.append_run(data, run)
    log.offsets.advance_log_end(run[-1].next_offset)
    log.producer_log.replay(segment, run)
