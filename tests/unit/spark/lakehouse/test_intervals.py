"""Offsets as intervals, against plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from millstream.spark.lakehouse.intervals import Interval, collect, gaps, size, union

OFFSETS = st.lists(st.integers(0, 30), max_size=40)


def spelled(intervals: list[Interval]) -> set[int]:
    return {offset for start, end in intervals for offset in range(start, end)}


@given(st.lists(OFFSETS, max_size=4))
def test_union_against_counting(parts: list[list[int]]) -> None:
    found = union(collect(np.array(part, np.int64)) for part in parts)
    everything = [offset for part in parts for offset in part]
    assert spelled(list(found.intervals)) == set(everything)
    assert found.count == len(everything)
    assert spelled(list(found.doubled)) == {o for o in everything if everything.count(o) > 1}
    starts = [start for start, _ in found.intervals]
    assert starts == sorted(set(starts))


@given(OFFSETS, st.integers(0, 30), st.integers(0, 30))
def test_gaps_against_a_set(offsets: list[int], start: int, end: int) -> None:
    held = collect(np.array(offsets, np.int64))
    missing = gaps(held.intervals, start, end)
    assert spelled(missing) == set(range(start, end)) - set(offsets)
    assert size(missing) == len(set(range(start, end)) - set(offsets))
