"""Which aborted transactions a committed reader of a part of the log has to know."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.model.errors import CorruptIndexError
from millstream.model.offsets import Offset
from millstream.storage.environment import LogEnvironment
from millstream.storage.producer_snapshot import ProducerSnapshots
from millstream.storage.read_ahead import ColdReadError
from millstream.storage.segments import Segments
from millstream.storage.transaction_index_rebuild import TransactionIndexRebuild


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records a committed reader drops, as a Fetch response names it."""

    producer_id: int
    first_offset: Offset


def aborted_transactions(
    environment: LogEnvironment,
    segments: Segments,
    snapshots: ProducerSnapshots,
    *,
    fetch_offset: Offset,
    segment_base_offset: Offset,
    end_position: int,
    log_end_offset: Offset,
    wait_for_disk: bool,
) -> list[AbortedTransaction]:
    """Return the aborted transactions that touch what was read from ``fetch_offset`` up to a
    byte position in one segment. Some that lie beyond may be among them.

    A damaged index is rebuilt from the log. With ``wait_for_disk`` False, raises
    ColdReadError with that work for another thread. Raises CorruptLogError where the log is damaged
    as well; OSError.
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
        index = candidate.transaction_index
        try:
            found, complete = index.collect(fetch_offset, upper_bound)
        except CorruptIndexError:
            rebuild = index.rebuild
            if rebuild is None or not rebuild.is_current:
                rebuild = index.rebuild = TransactionIndexRebuild(
                    environment, segments, candidate, snapshots
                )
            if not rebuild.is_done:
                if not wait_for_disk:
                    raise ColdReadError(preparations=[rebuild]) from None
                rebuild.run_here()
            if rebuild.failure is not None:
                raise rebuild.failure from None
            index.replace(rebuild.entries)
            found, complete = index.collect(fetch_offset, upper_bound)
        aborted += (AbortedTransaction(entry.producer_id, entry.first_offset) for entry in found)
        if complete:
            break
    return aborted
