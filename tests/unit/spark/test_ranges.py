"""Ranges are cut into tasks without a gap, an overlap or an empty part."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.topic import TopicPartition
from millstream.spark.ranges import FEW_TASKS, PACKED_OFFSETS, OffsetRange, pack, split


def ranges_of(*sizes: int) -> list[OffsetRange]:
    return [
        OffsetRange(TopicPartition("t", number), 100, 100 + size)
        for number, size in enumerate(sizes)
    ]


def sizes(parts: list[OffsetRange]) -> list[int]:
    return [part.size for part in parts]


def test_one_task_for_each_partition_that_has_something() -> None:
    assert split(ranges_of(5, 0, 7)) == [*ranges_of(5), ranges_of(0, 0, 7)[2]]
    assert split(ranges_of(0, 0), min_partitions=8) == []


def test_a_limit_on_records() -> None:
    assert sizes(split(ranges_of(10, 3), max_records=4)) == [3, 3, 4, 3]


def test_large_ranges_are_cut_in_proportion_and_small_ones_stay_whole() -> None:
    assert sizes(split(ranges_of(100, 300), min_partitions=4)) == [100, 100, 100, 100]
    assert sizes(split(ranges_of(1, 1000), min_partitions=3)) == [1, 500, 500]
    assert sizes(split(ranges_of(1), min_partitions=5)) == [1]


@given(
    st.lists(st.integers(0, 10_000), max_size=6),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 5_000),
)
def test_the_parts_are_the_whole(
    lengths: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    whole = ranges_of(*lengths)
    parts = split(whole, min_partitions=min_partitions, max_records=max_records)
    for each in whole:
        own = [part for part in parts if part.topic_partition == each.topic_partition]
        assert all(part.size > 0 for part in own)
        assert max_records is None or all(part.size <= max_records for part in own)
        ends = [each.start, *(part.end for part in own)]
        assert [part.start for part in own] == ends[:-1]
        assert ends[-1] == each.end


def test_few_ranges_have_a_task_each() -> None:
    few = ranges_of(*[1] * FEW_TASKS)
    assert pack(few) == [(each,) for each in few]


@given(st.lists(st.integers(1, 2 * PACKED_OFFSETS), min_size=FEW_TASKS + 1, max_size=60))
def test_many_small_ranges_share_tasks(chosen: list[int]) -> None:
    ranges = ranges_of(*chosen)
    tasks = pack(ranges)
    assert [each for task in tasks for each in task] == ranges
    loads = [sum(each.size for each in task) for task in tasks]
    assert all(
        load <= PACKED_OFFSETS or len(task) == 1 for load, task in zip(loads, tasks, strict=True)
    )
    assert all(
        load + task[0].size > PACKED_OFFSETS for load, task in zip(loads, tasks[1:], strict=False)
    )
