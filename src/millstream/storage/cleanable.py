"""Which part of a log is dirty, and which part may be cleaned. Pure except for reading segments'
timestamps.

::

    log start ........ first dirty ........ first uncleanable ........ log end
    |  clean segments  |  dirty, cleanable  |  dirty, not yet         |

Not cleaned are the active segment, what lies beyond the last stable offset, and segments with a
record younger than ``min.compaction.lag.ms``. A log should be cleaned when its dirty part is more
than ``min.cleanable.dirty.ratio`` of both, or holds records older than ``max.compaction.lag.ms``.
Kafka: ``LogCleanerManager``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.config.topic import TopicConfig
from millstream.config.value import MAX_LONG
from millstream.model.errors import MillstreamError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, Offset
from millstream.storage.log import Log
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments


class CleaningAbortedError(MillstreamError):
    """The log was truncated, moved or deleted during the cleaning, or the cleaning was
    cancelled.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanableRange:
    """The dirty part of a log that may be cleaned, by offset and in bytes.

    ``overdue_ms`` says by how much its oldest segment has passed ``max.compaction.lag.ms``.
    """

    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int

    @property
    def dirty_ratio(self) -> float:
        """Share of the dirty bytes, 0 in an empty log."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, min_dirty_ratio: float) -> bool:
        """Tell whether the log should be cleaned now."""
        return self.dirty_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio)


def valid_checkpoint(
    checkpoint: Offset | None, *, log_start_offset: Offset, log_end_offset: Offset
) -> Offset:
    """Return the first dirty offset: the checkpoint, or the log start where it cannot be right."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def find_cleanable(log: Log, checkpoint: Offset | None, *, now_ms: int) -> CleanableRange:
    """Return the dirty part of a log that may be cleaned. Raises StorageError; CorruptLogError."""
    first_dirty_offset = valid_checkpoint(
        checkpoint, log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset
    )
    try:
        return cleanable_range(
            log.local.segments,
            log.config,
            first_dirty_offset=first_dirty_offset,
            last_stable_offset=log.last_stable_offset,
            now_ms=now_ms,
        )
    except OSError as error:
        raise log.local.failure(error) from error


def cleanable_range(
    segments: Segments,
    config: TopicConfig,
    *,
    first_dirty_offset: Offset,
    last_stable_offset: Offset,
    now_ms: int,
) -> CleanableRange:
    """Return what of a log may be cleaned. Raises OSError; CorruptLogError."""
    closed = list(segments)[:-1]
    dirty = [s for s in segments.starting_with(first_dirty_offset) if s is not segments.active]
    uncleanable = min(last_stable_offset, segments.active.base_offset)
    if config.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - config.min_compaction_lag_ms
        for segment in dirty:
            if segment.base_offset >= uncleanable:
                break
            if segment.newest_ms() > youngest_ms:
                uncleanable = segment.base_offset
                break
    uncleanable = max(first_dirty_offset, uncleanable)
    holder = segments.floor(uncleanable)
    first_uncleanable_offset = segments.first.base_offset if holder is None else holder.base_offset
    # A segment that the dirty part begins in the middle of counts as dirty and as clean, as in
    # Kafka.
    return CleanableRange(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_uncleanable_offset,
        clean_bytes=sum(s.size for s in closed if s.base_offset < first_dirty_offset),
        dirty_bytes=sum(s.size for s in dirty if s.base_offset < first_uncleanable_offset),
        overdue_ms=_overdue_ms(dirty, config, now_ms),
    )


def _overdue_ms(dirty: Sequence[Segment], config: TopicConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms == MAX_LONG:
        return 0
    until_ms = now_ms - config.max_compaction_lag_ms
    first_ms = [at_ms for segment in dirty if (at_ms := segment.first_batch_timestamp()) > 0]
    return max(0, until_ms - min(first_ms, default=until_ms))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSegment:
    """A closed segment to clean: its files are known by its base offset."""

    base_offset: Offset
    end_offset: Offset
    """Where the next segment begins."""
    size: int
    index_bytes: int = 0
    time_index_bytes: int = 0
    modified_ms: int = 0


def group_segments(
    segments: Sequence[SourceSegment], *, max_bytes: int, max_index_bytes: int
) -> list[list[SourceSegment]]:
    """Put segments that fit into one together: by size, size of each index, and span of offsets.

    Kafka: ``Cleaner.groupSegmentsBySize``.
    """
    groups: list[list[SourceSegment]] = []
    size = index_bytes = time_index_bytes = 0
    for segment in segments:
        size += segment.size
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            groups
            and size <= max_bytes
            and max(index_bytes, time_index_bytes) <= max_index_bytes
            and (
                segment.size == 0
                or segment.end_offset - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
        ):
            groups[-1].append(segment)
            continue
        groups.append([segment])
        size = segment.size
        index_bytes, time_index_bytes = segment.index_bytes, segment.time_index_bytes
    return groups
