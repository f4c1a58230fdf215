"""From a region to the offset ranges that are read.

Partitions and offsets restrict them exactly. A time from below becomes the offset of the first
record at or after it, by the time indexes: records before it are all older. A time from above
restricts nothing unless ``lateness_ms`` bounds how late records are stored, because producers set
times as they like and no index says that no later record is older.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.query.region import ANY, Box, Interval, Region
from millstream.spark.offsets import LARGEST_LONG
from millstream.spark.ranges import OffsetRange
from millstream.spark.topics import Topics

SMALL_GAP: Final = 2_000
"""Ranges that are so few offsets apart are read as one: another request takes longer."""


@dataclass(frozen=True, slots=True)
class TopicEnds:
    """The partitions of a topic: the first offset of each, and the one after its last."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]

    @property
    def offsets(self) -> int:
        """Return how many offsets there are."""
        return sum(self.latest.values()) - sum(self.earliest.values())


def ranges_of(
    region: Region, ends: TopicEnds, topics: Topics, *, lateness_ms: int | None
) -> list[OffsetRange]:
    """Return what has to be read of each partition, in order and without overlaps."""
    boxes = {
        each: [box for box in region if box.partitions.low <= each.partition <= box.partitions.high]
        for each in ends.latest
    }
    bounds = _times_as_offsets(boxes, ends, topics, lateness_ms)
    ranges: list[OffsetRange] = []
    for topic_partition, mine in boxes.items():
        log = Interval(ends.earliest[topic_partition], ends.latest[topic_partition] - 1)
        log &= bounds.get(topic_partition, ANY)
        pieces = [box.offsets & log for box in mine]
        ranges += (
            OffsetRange(topic_partition, piece.low, piece.high + 1)
            for piece in _joined(piece for piece in pieces if not piece.is_empty)
        )
    return ranges


def times_of(region: Region, topic_partition: TopicPartition) -> Interval:
    """Return the times (µs) that records of a partition may have."""
    times = [
        box.times
        for box in region
        if box.partitions.low <= topic_partition.partition <= box.partitions.high
    ]
    return Interval(
        min((each.low for each in times), default=0), max((each.high for each in times), default=-1)
    )


def _times_as_offsets(
    boxes: Mapping[TopicPartition, Sequence[Box]],
    ends: TopicEnds,
    topics: Topics,
    lateness_ms: int | None,
) -> dict[TopicPartition, Interval]:
    firsts: dict[TopicPartition, int] = {}
    lasts: dict[TopicPartition, int] = {}
    for topic_partition, mine in boxes.items():
        if not mine or ends.latest[topic_partition] <= ends.earliest[topic_partition]:
            continue
        first_ms = min(box.times.low for box in mine) // 1000
        after_ms = max(box.times.high for box in mine) // 1000 + 1 + (lateness_ms or 0)
        if first_ms > 0:  # −1 and −2 ask for the ends of a log
            firsts[topic_partition] = first_ms
        if lateness_ms is not None and after_ms < ANY.high // 1000:
            lasts[topic_partition] = max(after_ms, 0)
    found_first = topics.at_times(firsts) if firsts else {}
    found_after = topics.at_times(lasts) if lasts else {}
    return {
        each: Interval(
            _or_end(found_first[each]) if each in found_first else 0,
            _or_end(found_after[each]) - 1 if each in found_after else LARGEST_LONG,
        )
        for each in {*found_first, *found_after}
    }


def _or_end(offset: Offset | None) -> Offset:
    return LARGEST_LONG if offset is None else offset


def _joined(pieces: Iterable[Interval]) -> list[Interval]:
    """Return the pieces in order; those that overlap, or nearly touch, as one."""
    joined: list[Interval] = []
    for piece in sorted(pieces, key=lambda each: each.low):
        if joined and piece.low - joined[-1].high <= SMALL_GAP:
            joined[-1] |= piece
        else:
            joined.append(piece)
    return joined
