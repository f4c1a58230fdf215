"""Which aborted transactions a committed reader of a part of the log has to know."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.offsets import Offset
from millstream.storage.segments import Segments


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records a committed reader drops, as a Fetch response names it."""

    producer_id: int
    first_offset: Offset


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
