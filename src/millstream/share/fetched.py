"""What a share partition has to know of the record batches that were read from the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from millstream.model.offsets import Offset


class OffsetRange(NamedTuple):
    """Offsets from the first to the last, both included."""

    first_offset: Offset
    last_offset: Offset


class FetchedBatches(NamedTuple):
    """The record batches that a read of the log returned, at least one, in order.

    ``aborted``: those of aborted transactions, in order; given where the group reads committed
    records only.
    """

    base_offsets: Sequence[Offset]
    last_offset: Offset
    aborted: Sequence[OffsetRange] = ()

    def end_of_batch(self, offset: Offset) -> Offset:
        """Return the last offset before the batch behind the one that has ``offset``."""
        behind = bisect_right(self.base_offsets, offset)
        if behind == len(self.base_offsets):
            return self.last_offset
        return self.base_offsets[behind] - 1

    def split(self, first_offset: Offset, last_offset: Offset, size: int) -> list[OffsetRange]:
        """Cut offsets at the boundaries of batches into ranges of at least ``size``, except the
        last (Kafka: ``SharePartition.createBatches``).
        """
        ranges: list[OffsetRange] = []
        if last_offset - first_offset + 1 > size:
            for base_offset in self.base_offsets:
                if base_offset > last_offset:
                    break
                if base_offset - first_offset >= max(size, 1):
                    ranges.append(OffsetRange(first_offset, base_offset - 1))
                    first_offset = base_offset
        ranges.append(OffsetRange(first_offset, last_offset))
        return ranges
