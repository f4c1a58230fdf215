"""Offset ranges, the unit of work of a read, and how they are split among tasks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from millstream.model.offsets import Offset
from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition

FEW_TASKS: Final = 16
"""Up to this many ranges, each gets a task of its own, however small."""
PACKED_OFFSETS: Final = 10_000
"""Small ranges share a task up to this many offsets: starting a task takes Spark longer than
reading so many records.
"""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from ``start`` up to and without ``end`` of one partition."""

    topic_partition: TopicPartition
    start: Offset
    end: Offset
    topic_id: TopicId = field(default=ZERO_TOPIC_ID, compare=False)
    """The topic that the offsets are of; ZERO_TOPIC_ID: whichever has the name."""

    @property
    def size(self) -> int:
        """Offsets in the range; records may be fewer, because logs have gaps."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic_partition}[{self.start}, {self.end})"


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Return at least ``min_partitions`` ranges of at most ``max_records`` offsets each.

    Empty ranges are left out. First come the cuts that ``max_records`` asks for. If the ranges
    are then still too few, large ones are cut in proportion to their size, and those that are too
    small for a second task stay whole (Kafka connector: ``KafkaOffsetRangeCalculator``).
    """
    whole = [each for each in ranges if each.size > 0]
    if max_records is not None:
        whole = [part for each in whole for part in _cut(each, -(-each.size // max_records))]
    if min_partitions is None or len(whole) >= min_partitions or not whole:
        return whole
    return _cut_in_proportion(whole, min_partitions)


def pack(ranges: Sequence[OffsetRange]) -> list[tuple[OffsetRange, ...]]:
    """Return one tuple for each task: neighbours that are small together share one."""
    if len(ranges) <= FEW_TASKS:
        return [(each,) for each in ranges]
    tasks: list[list[OffsetRange]] = []
    offsets = PACKED_OFFSETS
    for each in ranges:
        offsets += each.size
        if offsets > PACKED_OFFSETS:
            tasks.append([])
            offsets = each.size
        tasks[-1].append(each)
    return [tuple(task) for task in tasks]


def _cut_in_proportion(whole: Sequence[OffsetRange], wanted: int) -> list[OffsetRange]:
    total = sum(each.size for each in whole)
    small = {each for each in whole if _share(each.size, total, wanted) == 1}
    large_total = total - sum(each.size for each in small)
    large_wanted = max(wanted - len(small), 1)
    parts: list[OffsetRange] = []
    for each in whole:
        count = 1 if each in small else _share(each.size, large_total, large_wanted)
        parts += _cut(each, count)
    return parts


def _share(size: int, total: int, wanted: int) -> int:
    """Return how many of ``wanted`` tasks a range gets; halves round up."""
    return max((2 * size * wanted + total) // (2 * total), 1)


def _cut(each: OffsetRange, count: int) -> list[OffsetRange]:
    """Cut a range into ``count`` parts whose sizes differ by one at most."""
    count = min(count, each.size)
    cuts = [each.start + each.size * number // count for number in range(count + 1)]
    return [replace(each, start=start, end=end) for start, end in pairwise(cuts)]
