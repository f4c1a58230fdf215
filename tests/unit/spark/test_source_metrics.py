"""Offsets behind latest, of a query's progress."""

from __future__ import annotations

import json
from typing import Any

from millstream.model.topic import TopicPartition
from millstream.spark.source_metrics import source_metrics
from millstream.spark.stream_offsets import StreamOffset

ZERO, ONE, TWO = (TopicPartition("clicks", number) for number in range(3))


def offset(positions: dict[TopicPartition, int]) -> str:
    return json.dumps(StreamOffset(positions, {}).to_json())


def progress(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"name": None, "sources": list(sources)}


def test_what_no_micro_batch_has_read() -> None:
    (found,) = source_metrics(
        progress(
            {
                "endOffset": offset({ZERO: 10, ONE: 7}),
                "latestOffset": offset({ZERO: 64, ONE: 13}),
                "inputRowsPerSecond": 5.0,
                "processedRowsPerSecond": 8.0,
            }
        )
    )
    assert found.offsets_behind == {ZERO: 54, ONE: 6}
    assert found.total == 60
    assert (found.input_rows_per_second, found.processed_rows_per_second) == (5.0, 8.0)
    assert found.to_json() == {
        "minOffsetsBehindLatest": "6",
        "maxOffsetsBehindLatest": "54",
        "avgOffsetsBehindLatest": "30.0",
    }


def test_a_new_partition_and_one_that_went_back() -> None:
    (found,) = source_metrics(
        progress(
            {
                "endOffset": offset({ZERO: 10, ONE: 7}),
                "latestOffset": offset({ZERO: 10, ONE: 3, TWO: 4}),
            }
        )
    )
    assert found.offsets_behind == {ZERO: 0, ONE: 0, TWO: 4}
    assert found.input_rows_per_second == 0


def test_offsets_as_values() -> None:
    ends = StreamOffset({ZERO: 3}, {}).to_json()
    (found,) = source_metrics(progress({"endOffset": ends, "latestOffset": ends}))
    assert found.total == 0


def test_other_sources_are_left_out_and_counted() -> None:
    ours = {"endOffset": offset({ZERO: 1}), "latestOffset": offset({ZERO: 2})}
    others: list[dict[str, Any]] = [
        {"endOffset": "17", "latestOffset": "18"},
        {"endOffset": None, "latestOffset": None},
        {"endOffset": "not JSON", "latestOffset": "not JSON"},
        {"endOffset": '{"clicks":{"0":1}}', "latestOffset": '{"clicks":{"0":2}}'},  # stock
    ]
    assert [each.source for each in source_metrics(progress(*others, ours))] == [4]
    assert source_metrics({}) == []
