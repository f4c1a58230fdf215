"""Combines state batches that overlap into batches that do not.

Of several batches that cover an offset the one with the highest delivery count wins, and of those
with one count the highest delivery state: available, acknowledged, archived. Neighbours of one
state and count become one batch. What lies below the start offset is dropped. The outcome says of
each offset what Kafka's ``PersisterStateBatchCombiner`` says of it; Kafka may leave neighbours
apart that are one batch here.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

from millstream.share.state import UNINITIALIZED_START_OFFSET, StateBatch


def combine_batches(batches: Iterable[StateBatch], *, start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches in order, none overlapping; ``start_offset`` -1 drops nothing.

    Takes n log n steps for n batches. Every batch has its first offset at or below its last.
    """
    if start_offset != UNINITIALIZED_START_OFFSET:
        batches = (
            each if each.first_offset >= start_offset else each._replace(first_offset=start_offset)
            for each in batches
            if each.last_offset >= start_offset
        )
    waiting = sorted(batches)
    combined: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []
    """A heap of count, state (both negated) and last offset of the batches that cover ``offset``,
    and of some that have ended."""
    index, offset = 0, 0
    while covering or index < len(waiting):
        if not covering:
            offset = waiting[index].first_offset
        while index < len(waiting) and waiting[index].first_offset <= offset:
            each = waiting[index]
            heappush(covering, (-each.delivery_count, -each.delivery_state, each.last_offset))
            index += 1
        while covering and covering[0][2] < offset:
            heappop(covering)
        if not covering:
            continue
        count, state, last_offset = covering[0]
        if index < len(waiting):
            last_offset = min(last_offset, waiting[index].first_offset - 1)
        _append(combined, StateBatch(offset, last_offset, -state, -count))
        offset = last_offset + 1
    return tuple(combined)


def _append(combined: list[StateBatch], batch: StateBatch) -> None:
    if combined:
        last = combined[-1]
        if last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            combined[-1] = last._replace(last_offset=batch.last_offset)
            return
    combined.append(batch)
