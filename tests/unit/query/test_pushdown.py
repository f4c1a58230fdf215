"""From times to offsets: no record of the region is left out, whatever its neighbours' times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.query.pushdown import TopicEnds, ranges_of
from millstream.query.region import Box, Interval
from millstream.spark.topics import Topics

HITS = TopicPartition("hits", 0)
TIMES_MS = [10, 20, 20, 30, 20, 31, 40]


class TimeIndexes:
    """Answers as a broker does: the first offset of at least a time."""

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        return {
            each: next((n for n, stored in enumerate(TIMES_MS) if stored >= time_ms), None)
            for each, time_ms in times.items()
        }


@pytest.mark.parametrize(
    ("low_ms", "high_ms", "lateness_ms", "ranges"),
    [
        (20, None, None, ["hits-0[1, 7)"]),
        (20.5, None, None, ["hits-0[1, 7)"]),
        (21, None, None, ["hits-0[3, 7)"]),
        (41, None, None, []),
        (None, 20, None, ["hits-0[0, 7)"]),
        (None, 20, 10, ["hits-0[0, 5)"]),
        (None, 10, 0, ["hits-0[0, 1)"]),
        (None, 31, 0, ["hits-0[0, 6)"]),
        (None, 40, 0, ["hits-0[0, 7)"]),
        (31, 31, 0, ["hits-0[5, 6)"]),
    ],
)
def test_times_as_offsets(
    low_ms: float | None, high_ms: int | None, lateness_ms: int | None, ranges: list[str]
) -> None:
    every = Interval()
    times = Interval(
        every.low if low_ms is None else int(low_ms * 1000),
        every.high if high_ms is None else high_ms * 1000,
    )
    ends = TopicEnds({HITS: 0}, {HITS: len(TIMES_MS)})
    topics = cast(Topics, TimeIndexes())
    found = ranges_of((Box(times=times),), ends, topics, lateness_ms=lateness_ms)
    assert [str(each) for each in found] == ranges


def test_alternatives_of_times_are_read_from_the_earliest_to_the_latest() -> None:
    region = (
        Box(times=Interval(40_000, 40_000)),
        Box(times=Interval(20_000, 20_000)),
        Box(times=Interval(31_000, 31_000)),
    )
    ends = TopicEnds({HITS: 0}, {HITS: len(TIMES_MS)})
    topics = cast(Topics, TimeIndexes())
    found = ranges_of(region[1:], ends, topics, lateness_ms=0)
    assert [str(each) for each in found] == ["hits-0[1, 6)"]
    found = ranges_of(region, ends, topics, lateness_ms=0)
    assert [str(each) for each in found] == ["hits-0[1, 7)"]
