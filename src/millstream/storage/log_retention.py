"""Applies retention to a log by deleting its oldest segments (``retention`` has the rules).

Kafka: ``UnifiedLog.deleteOldSegments``.
"""

from __future__ import annotations

import logging

from millstream.model.errors import CorruptLogError
from millstream.storage.log import Log
from millstream.storage.retention import RetentionRules, SegmentAge, count_deletable

_log = logging.getLogger(__name__)


def delete_old_segments(log: Log, *, now_ms: int) -> int:
    """Apply retention by log start, size and time; return how many segments went.

    Their files are renamed at once and removed later (``LogManager.removals``). Raises
    StorageError.
    """
    try:
        count = _count_to_delete(log, now_ms)
        if count:
            log.truncation.increment_log_start_offset(log.local.segments.base_offsets[count])
            log.producers.drop_snapshots(log.local.delete_first(count, now_ms=now_ms))
    except OSError as error:
        raise log.local.failure(error) from error
    return count


def _count_to_delete(log: Log, now_ms: int) -> int:
    """Return how many of the oldest segments have to go. Where that is all of them, a new one is
    begun first.
    """
    if not _oldest_may_go(log, now_ms):
        return 0
    config, offsets, local = log.config, log.offsets, log.local
    count = count_deletable(
        _ages(log),
        RetentionRules(
            retention_ms=config.retention_ms,
            retention_bytes=config.retention_bytes,
            deletes=config.deletes,
        ),
        log_start_offset=offsets.log_start_offset,
        committed_offset=offsets.last_stable_offset,
        now_ms=now_ms,
    )
    if count and count == len(local.segments):
        try:
            log.appender.roll(now_ms=now_ms)
        except CorruptLogError as error:
            _log.warning("%s: its active segment stays: %s", log.topic_partition, error)
            count -= 1
    return count


def _ages(log: Log) -> list[SegmentAge]:
    """Return the input of the retention rules, oldest segment first."""
    segments = list(log.local.segments)
    ends = [segment.base_offset for segment in segments[1:]] + [log.log_end_offset]
    return [
        SegmentAge(end, segment.size, segment is log.local.active, segment.newest_ms)
        for segment, end in zip(segments, ends, strict=True)
    ]


def _oldest_may_go(log: Log, now_ms: int) -> bool:
    """Return False if no retention rule applies to the oldest segment, which is the quick answer
    for most logs. True means that the full check is needed.
    """
    config, segments = log.config, log.local.segments
    oldest = segments.first
    following = segments.higher(oldest.base_offset)
    if following is not None and following.base_offset <= log.log_start_offset:
        return True
    if not config.deletes:
        return False
    if 0 <= config.retention_bytes <= segments.size - oldest.size:
        return True
    retention_ms = config.retention_ms
    return retention_ms >= 0 and now_ms - oldest.claimed_newest_ms() > retention_ms
