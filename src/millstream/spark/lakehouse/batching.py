"""Plans the offsets of the next batch and divides them among tasks. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.ranges import OffsetRange

_DEFAULT_BYTES_PER_OFFSET: Final = 200.0
_WEIGHT: Final = 0.3


@dataclass(slots=True)
class SizeEstimate:
    """The estimated bytes of log per offset of each topic, from what was read so far."""

    _bytes_per_offset: dict[str, float] = field(default_factory=dict)
    _least: dict[str, float] = field(default_factory=dict)

    def of(self, topic: str) -> float:
        """Return bytes per offset; never 0."""
        return self._bytes_per_offset.get(topic, _DEFAULT_BYTES_PER_OFFSET)

    def learn(self, topic: str, *, offsets: int, size_bytes: int) -> None:
        """Update the estimate from a range that was read."""
        if offsets <= 0 or size_bytes <= 0:
            return
        seen = max(size_bytes / offsets, 0.01)
        known = self._bytes_per_offset.get(topic)
        blended = seen if known is None else known + _WEIGHT * (seen - known)
        self._bytes_per_offset[topic] = max(blended, self._least.get(topic, 0.0))

    def raise_to(self, topic: str, bytes_per_offset: float) -> None:
        """Raise the estimate to what a part of a topic has, and keep it from falling below half of
        that: of a compacted topic the new records are close together, the old ones are not.
        """
        self._least[topic] = max(bytes_per_offset / 2, self._least.get(topic, 0.0))
        self._bytes_per_offset[topic] = max(bytes_per_offset, self.of(topic))

    def expect(self, topic: str, *, offsets: int, size_bytes: int) -> None:
        """Raise the estimate by a log's size from the brokers, if that is larger.

        If it is smaller, the records may be compressed, or small compared with the overhead per
        record.
        """
        if offsets > 0 and size_bytes > offsets * self.of(topic):
            self._bytes_per_offset[topic] = size_bytes / offsets

    def size(self, each: OffsetRange) -> float:
        """Return the estimated bytes of log of a range."""
        return each.size * self.of(each.topic_partition.topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of a batch and its tasks."""

    batch_bytes: int
    """Bytes of log in one commit: the most that is read again after a crash."""
    task_bytes: int
    """Bytes of log in one task."""
    least_task_bytes: int = 8 << 20
    """Below this a further task costs more than it saves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteLimit:
    """How many bytes of records a task may read, where the driver has to hold what they become."""

    per_offset: Mapping[str, float]
    """What an offset of each topic was expected to take."""
    least_bytes: int

    def of(self, ranges: Sequence[OffsetRange]) -> float:
        """Return twice what was expected of these ranges, and at least ``least_bytes``."""
        expected = sum(each.size * self.per_offset[each.topic_partition.topic] for each in ranges)
        return max(2 * expected, self.least_bytes)


def byte_limit(
    ranges: Sequence[OffsetRange], sizes: SizeEstimate, limits: BatchLimits
) -> ByteLimit | None:
    """Return the limit for the tasks of a batch; None for one that cannot be smaller."""
    if all(each.size <= 1 for each in ranges):
        return None
    topics = {each.topic_partition.topic for each in ranges}
    return ByteLimit(
        per_offset={topic: sizes.of(topic) for topic in topics},
        least_bytes=limits.batch_bytes // 4,
    )


def next_batch(
    positions: Mapping[TopicPartition, Offset],
    ends: Mapping[TopicPartition, Offset],
    sizes: SizeEstimate,
    limits: BatchLimits,
) -> list[OffsetRange]:
    """Return the next range of every partition that has one; all get the same share of the rest."""
    rest = [
        OffsetRange(topic_partition, positions[topic_partition], end)
        for topic_partition, end in sorted(ends.items())
        if end > positions[topic_partition]
    ]
    total = sum(sizes.size(each) for each in rest)
    if total <= limits.batch_bytes:
        return rest
    share = limits.batch_bytes / total
    return [
        OffsetRange(each.topic_partition, each.start, each.start + max(int(each.size * share), 1))
        for each in rest
    ]


def deal(
    ranges: Sequence[OffsetRange], sizes: SizeEstimate, limits: BatchLimits, *, parallelism: int
) -> list[list[OffsetRange]]:
    """Return tasks of about the same size; small ranges share one, large ranges are cut.

    The number of tasks is a multiple of ``parallelism``, those that can run at the same time, so
    that all finish at about the same time.
    """
    total = sum(sizes.size(each) for each in ranges)
    rounds = max(math.ceil(total / (limits.task_bytes * parallelism)), 1)
    wanted = max(total / (rounds * parallelism), limits.least_task_bytes)
    wanted = min(wanted, limits.task_bytes)
    tasks: list[list[OffsetRange]] = []
    room = 0.0
    for each in ranges:
        start = each.start
        while start < each.end:
            if room <= 0:
                tasks.append([])
                room = wanted
            per_offset = sizes.of(each.topic_partition.topic)
            end = min(each.end, start + math.ceil(room / per_offset))
            tasks[-1].append(OffsetRange(each.topic_partition, start, end))
            room -= (end - start) * per_offset
            start = end
    return tasks
