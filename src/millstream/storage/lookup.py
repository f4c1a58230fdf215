"""Look-ups across segments: by time, and of aborted transactions."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.offsets import NO_TIMESTAMP, LeaderEpoch, Offset
from millstream.records.batch import LOG_APPEND_TIME_BIT
from millstream.records.record import iter_records
from millstream.storage.segment import Segment
from millstream.storage.segments import Segments


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by its time (ListOffsets)."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records a committed reader drops, as a Fetch response names it."""

    producer_id: int
    first_offset: Offset


def offset_for_timestamp(
    segments: Segments, timestamp: int, start_offset: Offset
) -> TimestampOffset | None:
    """Return the first record at or after ``timestamp`` and ``start_offset``; None if none is.

    Markers count as records, as in Kafka. Empty segments, which compaction leaves, are passed
    over: when a file was written says nothing about records.
    """
    for segment in segments.starting_with(start_offset):
        if segment.size and segment.largest_timestamp() >= timestamp:
            found = _find_in_segment(segment, timestamp, start_offset)
            if found is not None:
                return found
    return None


def _find_in_segment(
    segment: Segment, timestamp: int, start_offset: Offset
) -> TimestampOffset | None:
    records = segment.records
    for found in records.headers(segment.indexes.time_floor_position(timestamp, start_offset)):
        if found.max_timestamp < timestamp or found.last_offset < start_offset:
            continue
        for record in iter_records(records.batch_at(found)):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, found.leader_epoch)
    return None


def offset_of_max_timestamp(segments: Segments) -> TimestampOffset | None:
    """Return the first record with the largest timestamp (KIP-734); None in an empty log.

    In a log whose records have no timestamps that is the first record, as in Kafka.
    """
    holder, largest = None, NO_TIMESTAMP
    for segment in segments:
        if segment.largest_timestamp() > largest:
            holder, largest = segment, segment.largest_timestamp()
    if holder is None:
        first = next(iter(segments.first.records.headers(0)), None)
        if first is None:
            return None
        return TimestampOffset(NO_TIMESTAMP, first.base_offset, first.leader_epoch)
    _, offset = holder.indexes.largest_timestamp()
    for found in holder.records.headers(holder.indexes.floor_position(offset)):
        if found.max_timestamp != largest:
            continue
        batch = holder.records.batch_at(found)
        if batch.attributes & LOG_APPEND_TIME_BIT:
            return TimestampOffset(largest, batch.base_offset, found.leader_epoch)
        for record in iter_records(batch):
            if record.timestamp == largest:
                return TimestampOffset(largest, record.offset, found.leader_epoch)
    return None


def aborted_transactions(
    segments: Segments,
    *,
    fetch_offset: Offset,
    segment_base_offset: Offset,
    end_position: int,
    log_end_offset: Offset,
) -> list[AbortedTransaction]:
    """Return the aborted transactions that touch what was read from ``fetch_offset`` up to a
    byte position in one segment. Some that lie beyond may be among them.
    """
    segment = segments.floor(segment_base_offset)
    if segment is None:
        return []
    upper_bound = segment.indexes.offset_beyond(end_position)
    if upper_bound is None:
        higher = segments.higher(segment.base_offset)
        upper_bound = log_end_offset if higher is None else higher.base_offset
    aborted: list[AbortedTransaction] = []
    for candidate in segments.starting_with(segment.base_offset):
        found, complete = candidate.transaction_index.collect(fetch_offset, upper_bound)
        aborted += (AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found)
        if complete:
            break
    return aborted
