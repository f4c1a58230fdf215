"""Which places of a topic a condition allows: a union of boxes of partition, offset and time. Pure.

A region holds at least every record for which the condition is true, and perhaps more: who reads it
still evaluates the condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

_MOST_BOXES: Final = 4096
"""A region of more is replaced by one box around it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The whole numbers from ``low`` to ``high``, both included."""

    low: int = -(2**63)
    high: int = 2**63 - 1

    @property
    def is_empty(self) -> bool:
        """True if no number is in it."""
        return self.low > self.high

    def __and__(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))

    def __or__(self, other: Interval) -> Interval:
        """Return the interval around both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


ANY: Final = Interval()


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Records of these partitions, with these offsets and these times (µs since 1970)."""

    partitions: Interval = ANY
    offsets: Interval = ANY
    times: Interval = ANY

    @property
    def is_empty(self) -> bool:
        """True if no record can be in it."""
        return self.partitions.is_empty or self.offsets.is_empty or self.times.is_empty

    def __and__(self, other: Box) -> Box:
        return Box(
            partitions=self.partitions & other.partitions,
            offsets=self.offsets & other.offsets,
            times=self.times & other.times,
        )

    def __or__(self, other: Box) -> Box:
        """Return the box around both."""
        return Box(
            partitions=self.partitions | other.partitions,
            offsets=self.offsets | other.offsets,
            times=self.times | other.times,
        )


Region: TypeAlias = tuple[Box, ...]

EVERYWHERE: Final[Region] = (Box(),)
NOWHERE: Final[Region] = ()


def union(regions: Iterable[Region]) -> Region:
    """Return where any of the regions is."""
    return _bounded({box: None for region in regions for box in region})


def intersection(regions: Iterable[Region]) -> Region:
    """Return where all of the regions are."""
    found = EVERYWHERE
    for region in regions:
        pairs = (one & other for one in found for other in region)
        found = _bounded({box: None for box in pairs if not box.is_empty})
    return found


def _bounded(boxes: dict[Box, None]) -> Region:
    if Box() in boxes:
        return EVERYWHERE
    if len(boxes) <= _MOST_BOXES:
        return tuple(boxes)
    first, *others = boxes
    for each in others:
        first |= each
    return (first,)
