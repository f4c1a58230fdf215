"""A streaming query's offsets, without Spark."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from millstream.model.topic import TopicId, TopicPartition
from millstream.spark.stream_offsets import StreamOffset, batch_start, behind, limit_offsets

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
ID = TopicId(bytes(range(16)))


def test_round_trip_through_json() -> None:
    offset = StreamOffset({ZERO: 5, ONE: 0}, {ZERO: 1}, {"t": ID}, True)
    value = json.loads(json.dumps(offset.to_json()))
    assert StreamOffset.from_json(value) == offset
    assert value["t"] == {"0": 5, "1": 0}


def test_offsets_of_the_stock_connector_are_understood() -> None:
    offset = StreamOffset.from_json({"t": {"0": 23, "1": 7}})
    assert offset == StreamOffset({ZERO: 23, ONE: 7}, {})


def test_the_first_batch_begins_where_its_end_says() -> None:
    told = StreamOffset({ZERO: 20}, {ZERO: 20}, is_initial=True)
    written = StreamOffset({ZERO: 15}, {ZERO: 10})
    assert batch_start(told, written) == {ZERO: 10}
    later = StreamOffset({ZERO: 15}, {ZERO: 10})
    assert batch_start(later, StreamOffset({ZERO: 18}, {ZERO: 10})) == {ZERO: 15}


def test_every_partition_gets_its_share() -> None:
    start, latest = {ZERO: 0, ONE: 0}, {ZERO: 90, ONE: 10}
    assert limit_offsets(start, latest, 40) == {ZERO: 36, ONE: 4}
    assert limit_offsets(start, latest, 100) == latest
    assert limit_offsets(start, latest, 1) == {ZERO: 1, ONE: 1}


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5),
    st.integers(1, 60),
)
def test_limited_batches_reach_the_end(ends: list[tuple[int, int]], most: int) -> None:
    position = {TopicPartition("t", i): start for i, (start, _) in enumerate(ends)}
    latest = {TopicPartition("t", i): start + rest for i, (start, rest) in enumerate(ends)}
    for _ in range(400):
        if not behind(position, latest):
            break
        following = limit_offsets(position, latest, most)
        assert 0 < behind(position, following) <= most + len(ends)
        assert all(position[place] <= following[place] <= latest[place] for place in latest)
        position = following
    assert position == latest
