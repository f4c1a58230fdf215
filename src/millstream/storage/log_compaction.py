"""The steps of cleaning that run on a live log's own thread: making the plan, and two short steps
for each new segment.

Between :func:`swap_in` and :func:`finish_swap` the log already reads from the new segment, under
its ``.swap`` names, and the replaced ones are renamed by :meth:`Swap.retire` on any thread. Kafka:
``LocalLog.replaceSegments``.
"""

from __future__ import annotations

from itertools import pairwise

from millstream.model.errors import StorageError
from millstream.model.offsets import NO_OFFSET
from millstream.storage.batch_filter import FilterRules, ProducerEnd
from millstream.storage.cleanable import CleanableRange, CleaningAbortedError, SourceSegment
from millstream.storage.cleaner import CleanedSegment, CleaningPlan
from millstream.storage.directory import CLEANED, DELETED, SWAP, SegmentLocation
from millstream.storage.log import Log
from millstream.storage.segment import Segment


def plan_cleaning(log: Log, dirty: CleanableRange, *, now_ms: int) -> CleaningPlan:
    """Return all that a cleaning has to know. Raises StorageError; CorruptIndexError."""
    segments = list(log.local.segments)
    end_offset = dirty.first_uncleanable_offset
    sources = [
        SourceSegment(
            base_offset=segment.base_offset, end_offset=following.base_offset, size=segment.size
        )
        for segment, following in pairwise(segments)
        if segment.base_offset < end_offset
    ]
    try:
        later = [
            entry
            for segment in segments
            if segment.base_offset >= end_offset
            for entry in segment.transaction_index.entries
            if entry.first_offset < end_offset
        ]
    except OSError as error:
        raise log.local.failure(error) from error
    unsynced = log.local.segments.starting_with(log.recovery_point)
    return CleaningPlan(
        topic_partition=log.topic_partition,
        log_directory=log.log_directory,
        directory_name=log.local.directory.name,
        config=log.config,
        segments=sources,
        first_dirty_offset=dirty.first_dirty_offset,
        later_aborted=later,
        unsynced=[segment.base_offset for segment in unsynced]
        if log.recovery_point < log.last_stable_offset
        else [],
        rules=FilterRules(
            now_ms=now_ms,
            delete_retention_ms=log.config.delete_retention_ms,
            end_offset=end_offset,
            producers={
                entry.producer_id: ProducerEnd(
                    entry.batches[-1].last_offset if entry.batches else NO_OFFSET,
                    entry.producer_epoch,
                )
                for entry in log.producers.entries()
            },
        ),
    )


class Swap:
    """A new segment that takes the place of old ones. ``retired`` are those, out of the log."""

    def __init__(self, log: Log, segment: Segment, retired: list[Segment]) -> None:
        self.log = log
        self.segment = segment
        self.retired = retired

    def retire(self) -> None:
        """Rename the old segments, oldest first. Any thread. Raises StorageError."""
        try:
            for segment in self.retired:
                segment.change_suffix(DELETED)
        except OSError as error:
            raise StorageError(self.log.log_directory, str(error)) from error


def swap_in(log: Log, cleaned: CleanedSegment, now_ms: int) -> Swap:
    """Let the log read from the new segment. Readers of the old ones keep their open files.

    Raises CleaningAbortedError when the log has changed meanwhile: the caller then removes the
    ``.cleaned`` files (``Cleaning.discard``). Raises StorageError.
    """
    local = log.local
    retired = [s for s in local.segments if s.base_offset in set(cleaned.sources)]
    if len(retired) != len(cleaned.sources) or local.active in retired:
        raise CleaningAbortedError(f"{log.topic_partition} has lost segments meanwhile")
    segment = _segment(log, cleaned, now_ms)
    try:
        segment.change_suffix(SWAP)
    except OSError as error:
        raise StorageError(log.log_directory, str(error)) from error
    for old in retired:
        old.close()
        local.segments.remove(old)
    local.segments.add(segment)
    return Swap(log, segment, retired)


def finish_swap(swap: Swap, *, now_ms: int) -> None:
    """Give the new segment its final names and schedule the old ones for deletion. Raises
    StorageError.
    """
    log, local = swap.log, swap.log.local
    try:
        # A log that was cut or deleted meanwhile has renamed it for good.
        if swap.segment in list(local.segments):
            swap.segment.change_suffix("")
        log.durability.note_names()
        due_ms = now_ms + local.config.file_delete_delay_ms
        for old in swap.retired:
            local.environment.removals.add(due_ms, local.directory.parent, old.remove)
            if old.base_offset != swap.segment.base_offset:
                log.producers.drop_snapshots([old.base_offset])
    except OSError as error:
        raise StorageError(log.log_directory, str(error)) from error


def _segment(log: Log, cleaned: CleanedSegment, now_ms: int) -> Segment:
    local = log.local
    return Segment(
        local.environment,
        SegmentLocation(local.directory, cleaned.base_offset, CLEANED),
        local.config,
        size=cleaned.size,
        created_ms=cleaned.modified_ms or now_ms,
    )
