"""Sets of offsets as sorted intervals, and the gaps and duplicates between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from millstream.model.offsets import Offset

Interval = tuple[Offset, Offset]
"""From the first offset up to and without the second."""


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """Offsets, their count, and those that occur more than once."""

    intervals: Sequence[Interval] = ()
    count: int = 0
    doubled: Sequence[Interval] = ()


def collect(offsets: NDArray[np.int64]) -> OffsetSet:
    """Return the set of an array's offsets, in whatever order they are."""
    if not len(offsets):
        return OffsetSet()
    ordered = np.sort(offsets)
    step = np.diff(ordered)
    doubled = np.unique(ordered[1:][step == 0])
    return OffsetSet(_runs(ordered[np.r_[True, step != 0]]), len(offsets), _runs(doubled))


def _runs(ordered: NDArray[np.int64]) -> list[Interval]:
    """Return the runs of consecutive numbers in an ascending array without duplicates."""
    if not len(ordered):
        return []
    breaks = np.flatnonzero(np.diff(ordered) != 1)
    firsts = ordered[np.r_[0, breaks + 1]].tolist()
    lasts = ordered[np.r_[breaks, len(ordered) - 1]].tolist()
    return [(first, last + 1) for first, last in zip(firsts, lasts, strict=True)]


def union(sets: Iterable[OffsetSet]) -> OffsetSet:
    """Return all offsets of several sets; those in more than one count as duplicates."""
    found = list(sets)
    pieces = sorted(interval for each in found for interval in each.intervals)
    doubled = [interval for each in found for interval in each.doubled]
    merged: list[Interval] = []
    for start, end in pieces:
        if merged and start <= merged[-1][1]:
            known = merged[-1]
            if start < known[1]:
                doubled.append((start, min(end, known[1])))
            merged[-1] = (known[0], max(known[1], end))
        else:
            merged.append((start, end))
    return OffsetSet(merged, sum(each.count for each in found), _join(doubled))


def _join(intervals: Iterable[Interval]) -> list[Interval]:
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def gaps(intervals: Sequence[Interval], start: Offset, end: Offset) -> list[Interval]:
    """Return the parts of [start, end) that are in no interval."""
    missing: list[Interval] = []
    position = start
    for low, high in intervals:
        if low >= end:
            break
        if low > position:
            missing.append((position, low))
        position = max(position, high)
    if position < end:
        missing.append((position, end))
    return missing


def size(intervals: Iterable[Interval]) -> int:
    """Return how many offsets intervals hold."""
    return sum(end - start for start, end in intervals)
