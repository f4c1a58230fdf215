"""The record batches of a read, as a share partition has to know them.

Of each batch only the header is read, 61 bytes out of the page cache; the records stay in the file
and go out with sendfile. Kafka: ``ShareFetchUtils.maybeSliceFetchRecords``,
``SharePartition.fetchAbortedTransactionRecordBatches``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.records.batch import HEADER_SIZE, Batch
from millstream.records.control import MARKER_BATCH_SIZE
from millstream.records.isolation import CommittedOnly
from millstream.share.fetched import FetchedBatches, OffsetRange
from millstream.storage.file_slice import FileSlice

if TYPE_CHECKING:
    from millstream.storage.log import AbortedTransaction

_READ_SIZE: Final = 4096
"""Bytes read at a time: several headers where batches are small."""


class FetchedRecords:
    """Whole batches of a read, at least one."""

    __slots__ = ("_ends", "_slice", "batches")

    def __init__(self, records: FileSlice, batches: FetchedBatches, ends: Sequence[int]) -> None:
        self.batches = batches
        self._slice = records
        self._ends = ends
        """Where each batch ends in the file."""

    def of(self, first_offset: Offset, last_offset: Offset) -> FileSlice:
        """Return the batches that have the offsets."""
        bases = self.batches.base_offsets
        begin = max(0, bisect_right(bases, first_offset) - 1)
        behind = max(bisect_left(bases, last_offset + 1), begin + 1)
        position = self._ends[begin - 1] if begin else self._slice.position
        return FileSlice(self._slice.file, position, self._ends[behind - 1] - position)


def fetched_records(
    records: FileSlice, *, up_to: Offset, aborted: Sequence[AbortedTransaction] = ()
) -> FetchedRecords | None:
    """Return the batches up to the one that has the offset ``up_to``, and which of them belong to
    aborted transactions; None if not one is whole.

    Raises CorruptLogError at bytes that are no batch.
    """
    bases: list[Offset] = []
    ends: list[int] = []
    dropped: list[OffsetRange] = []
    is_committed = CommittedOnly((each.producer_id, each.first_offset) for each in aborted)
    last_offset = -1
    position, end = records.position, records.position + records.size
    chunk, chunk_position = b"", position
    while position + HEADER_SIZE <= end and last_offset < up_to:
        at = position - chunk_position
        # A marker's one record is looked at, too.
        if at + MARKER_BATCH_SIZE > len(chunk):
            chunk = records.file.read_at(position, min(_READ_SIZE, end - position))
            chunk_position, at = position, 0
            if len(chunk) < HEADER_SIZE:
                break
        batch = Batch(memoryview(chunk)[at : at + MARKER_BATCH_SIZE])
        if batch.length < HEADER_SIZE - 12 or batch.base_offset <= last_offset:
            raise CorruptLogError(f"no batch at position {position}")
        position += batch.size
        if position > end:
            break
        bases.append(batch.base_offset)
        ends.append(position)
        last_offset = batch.last_offset
        if aborted and not is_committed(batch) and not batch.is_control:
            dropped.append(OffsetRange(batch.base_offset, last_offset))
    if not bases:
        return None
    return FetchedRecords(records, FetchedBatches(bases, last_offset, dropped), ends)
