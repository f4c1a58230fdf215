"""From a condition of Arrow to the places of a topic."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.query.predicate import PositionColumns, region_of
from millstream.query.region import EVERYWHERE, NOWHERE, Box, Interval, Region

COLUMNS = PositionColumns("_partition", "_offset", "_timestamp")
PARTITION, OFFSET, TIME = map(ds.field, ("_partition", "_offset", "_timestamp"))
US = pa.timestamp("us", "UTC")


def at(microseconds: int) -> pa.Scalar:
    return pa.scalar(microseconds, US)


@pytest.mark.parametrize(
    ("condition", "region"),
    [
        (OFFSET >= 3, (Box(offsets=Interval(low=3)),)),
        (pc.scalar(3) > OFFSET, (Box(offsets=Interval(high=2)),)),
        (pc.scalar(3) >= OFFSET, (Box(offsets=Interval(high=3)),)),
        (pc.scalar(3) < OFFSET, (Box(offsets=Interval(low=4)),)),
        (pc.scalar(3) <= OFFSET, (Box(offsets=Interval(low=3)),)),
        (pc.scalar(3) == OFFSET, (Box(offsets=Interval(3, 3)),)),
        (PARTITION == 1, (Box(partitions=Interval(1, 1)),)),
        (at(7) > TIME, (Box(times=Interval(high=6)),)),
        ((OFFSET >= 3) & (OFFSET <= 1), NOWHERE),
        ((OFFSET == 3) | (ds.field("status") > 7), EVERYWHERE),
        ((OFFSET == 3) & (ds.field("status") > 7), (Box(offsets=Interval(3, 3)),)),
        (~(OFFSET == 3), EVERYWHERE),
        (OFFSET != 3, EVERYWHERE),
        (pa.scalar(None, pa.int64()) == OFFSET, NOWHERE),
        (OFFSET == 2.5, EVERYWHERE),
        (ds.field("s", "_offset") == 3, EVERYWHERE),
        (dt.datetime(2024, 1, 1) == TIME, EVERYWHERE),
        (pc.scalar(False), NOWHERE),
        (pc.scalar(True), EVERYWHERE),
        (pc.abs(OFFSET) == 3, EVERYWHERE),
        (
            pc.if_else(OFFSET.is_valid(), OFFSET.isin([1, 9]), pa.scalar(None, pa.bool_())),
            (Box(offsets=Interval(1, 1)), Box(offsets=Interval(9, 9))),
        ),
        (
            (((OFFSET >= 3) & (OFFSET <= 7)) & ((PARTITION == 1) | (PARTITION == 4)))
            & (at(0) < TIME),
            tuple(
                Box(partitions=Interval(p, p), offsets=Interval(3, 7), times=Interval(low=1))
                for p in (1, 4)
            ),
        ),
        (None, EVERYWHERE),
    ],
)
def test_regions(condition: pc.Expression, region: Region) -> None:
    assert region_of(condition, COLUMNS) == region


def test_a_union_of_too_many_boxes_becomes_one_around_them() -> None:
    condition = OFFSET.isin(list(range(0, 20_000, 2)))
    assert region_of(condition, COLUMNS) == (Box(offsets=Interval(0, 19_998)),)


NUMBERS = st.integers(-2, 6)
COMPARISONS = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])


def compared(field: pc.Expression, sign: str, value: Any) -> pc.Expression:
    signs = {
        "==": lambda: field == value,
        "!=": lambda: field != value,
        "<": lambda: field < value,
        "<=": lambda: field <= value,
        ">": lambda: field > value,
        ">=": lambda: field >= value,
    }
    return signs[sign]()


LEAVES = st.one_of(
    st.builds(lambda s, n: compared(PARTITION, s, pa.scalar(n, pa.int32())), COMPARISONS, NUMBERS),
    st.builds(lambda s, n: compared(OFFSET, s, n), COMPARISONS, NUMBERS),
    st.builds(lambda s, n: compared(TIME, s, at(n)), COMPARISONS, NUMBERS),
    st.builds(lambda s, n: compared(ds.field("status"), s, n), COMPARISONS, NUMBERS),
    st.builds(OFFSET.isin, st.lists(NUMBERS, max_size=3).map(lambda n: pa.array(n, pa.int64()))),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=8,
)
ROWS = pa.table(
    {
        "_partition": pa.array([p for p in range(3) for _ in range(25)], pa.int32()),
        "_offset": pa.array([n // 5 for _ in range(3) for n in range(25)], pa.int64()),
        "_timestamp": pa.array([n % 5 for _ in range(3) for n in range(25)], US),
        "status": pa.array([None if n % 7 == 0 else n % 6 for n in range(75)], pa.int64()),
    }
)


@given(condition=CONDITIONS)
def test_no_row_that_a_condition_takes_is_outside_of_its_region(condition: pc.Expression) -> None:
    region = region_of(condition, COLUMNS)
    for row in ROWS.filter(condition).to_pylist():
        time = row["_timestamp"].microsecond
        place = Box(
            partitions=Interval(row["_partition"], row["_partition"]),
            offsets=Interval(row["_offset"], row["_offset"]),
            times=Interval(time, time),
        )
        assert any(not (box & place).is_empty for box in region), (row, region)
