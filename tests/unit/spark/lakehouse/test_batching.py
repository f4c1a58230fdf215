"""Which offsets make a batch, and how tasks share them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.batching import (
    BatchLimits,
    SizeEstimate,
    byte_limit,
    deal,
    next_batch,
)
from millstream.spark.ranges import OffsetRange

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = BatchLimits(batch_bytes=20_000, task_bytes=5_000, least_task_bytes=1_000)


def test_everything_goes_into_one_batch_when_it_is_small() -> None:
    found = next_batch({ZERO: 3, ONE: 7}, {ZERO: 10, ONE: 7}, SizeEstimate(), LIMITS)
    assert found == [OffsetRange(ZERO, 3, 10)]


def test_partitions_share_a_batch_in_proportion() -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1, size_bytes=100)
    found = next_batch({ZERO: 0, ONE: 0}, {ZERO: 300, ONE: 100}, sizes, LIMITS)
    assert found == [OffsetRange(ZERO, 0, 150), OffsetRange(ONE, 0, 50)]


def test_a_batch_moves_every_partition_that_has_something() -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1, size_bytes=1_000_000)
    found = next_batch({ZERO: 0, ONE: 0}, {ZERO: 5, ONE: 1}, sizes, LIMITS)
    assert [each.size for each in found] == [1, 1]


def test_large_records_are_expected_before_they_are_read() -> None:
    sizes = SizeEstimate()
    sizes.expect("t", offsets=100, size_bytes=1_000)
    assert sizes.of("t") == SizeEstimate().of("t")
    sizes.expect("t", offsets=100, size_bytes=1_000_000)
    sizes.expect("t", offsets=100, size_bytes=500_000)
    assert sizes.of("t") == 10_000
    sizes.learn("t", offsets=10, size_bytes=10_000)
    assert sizes.of("t") < 10_000


def test_the_estimate_follows_what_was_read() -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=10, size_bytes=1_000)
    assert sizes.of("t") == 100
    for _ in range(30):
        sizes.learn("t", offsets=10, size_bytes=5_000)
    assert 490 < sizes.of("t") <= 500
    sizes.learn("t", offsets=10, size_bytes=0)
    assert sizes.of("t") > 490


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8),
    st.integers(1, 500),
)
def test_tasks_cover_every_offset_once_and_in_order(
    bounds: list[tuple[int, int]], bytes_per_offset: int
) -> None:
    ranges = [
        OffsetRange(TopicPartition("t", index), start, start + length)
        for index, (start, length) in enumerate(bounds)
        if length
    ]
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1, size_bytes=bytes_per_offset)
    tasks = deal(ranges, sizes, LIMITS, parallelism=2)
    dealt = [
        (each.topic_partition, offset)
        for task in tasks
        for each in task
        for offset in range(each.start, each.end)
    ]
    wanted = [(r.topic_partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert dealt == wanted
    assert all(task for task in tasks)


def test_small_ranges_share_a_task_and_large_ones_are_cut() -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1, size_bytes=100)
    small = [OffsetRange(TopicPartition("t", index), 0, 1) for index in range(6)]
    assert len(deal(small, sizes, LIMITS, parallelism=2)) == 1
    assert len(deal([OffsetRange(ZERO, 0, 200)], sizes, LIMITS, parallelism=2)) == 4


@pytest.mark.parametrize("offsets", [77, 1000, 4321])
def test_tasks_end_together(offsets: int) -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1, size_bytes=100)
    limits = BatchLimits(batch_bytes=1 << 40, task_bytes=100_000, least_task_bytes=1)
    ranges = [OffsetRange(TopicPartition("t", index), 0, offsets) for index in range(7)]
    loads = [sum(each.size for each in task) for task in deal(ranges, sizes, limits, parallelism=3)]
    assert len(loads) % 3 == 0
    assert max(loads) - min(loads) <= len(loads)
    assert max(loads) <= 1001


def test_a_task_may_read_twice_what_was_expected() -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1, size_bytes=100)
    ranges = [OffsetRange(ZERO, 0, 40), OffsetRange(ONE, 7, 17)]
    limit = byte_limit(ranges, sizes, LIMITS)
    assert limit is not None
    assert limit.of(ranges) == 10_000
    assert limit.of(ranges[1:]) == 5_000  # a quarter of a batch


def test_a_batch_of_an_offset_of_each_partition_cannot_be_smaller() -> None:
    ranges = [OffsetRange(ZERO, 0, 1), OffsetRange(ONE, 7, 8)]
    assert byte_limit(ranges, SizeEstimate(), LIMITS) is None


def test_dense_records_are_not_forgotten_between_sparse_ones() -> None:
    sizes = SizeEstimate()
    sizes.learn("t", offsets=1_000, size_bytes=1_000)
    sizes.raise_to("t", 800.0)
    assert sizes.of("t") == 800
    for _ in range(20):
        sizes.learn("t", offsets=1_000, size_bytes=1_000)
    assert sizes.of("t") == 400
