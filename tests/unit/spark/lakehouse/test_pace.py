"""Rates, lag and the time to go of a load."""

from __future__ import annotations

import pytest

from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.lag import batch_lag
from millstream.spark.lakehouse.load_observers import LoadObserver, LoadObservers
from millstream.spark.lakehouse.pace import Pace, seconds_in_words
from millstream.spark.ranges import OffsetRange

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def report(
    *, rows: int, behind: int, seconds: float = 1.0, lag: float | None = None
) -> BatchReport:
    return BatchReport(
        batch=1,
        rows=rows,
        dead_letters=0,
        read_bytes=rows * 100,
        files=1,
        behind=behind,
        seconds=seconds,
        offsets=rows,
        lag_seconds=lag,
    )


def test_before_the_first_batch() -> None:
    pace = Pace()
    assert (pace.rows_per_second, pace.bytes_per_second, pace.behind) == (0, 0, 0)
    assert pace.seconds_to_go is None


def test_the_first_batch_counts_from_its_plan() -> None:
    pace = Pace()
    pace.add(report(rows=1000, behind=3000, seconds=2.0, lag=9.0), 10.0)
    assert pace.rows_per_second == 500
    assert pace.bytes_per_second == 50_000
    assert pace.seconds_to_go == 6
    assert pace.lag_seconds == 9


def test_what_is_written_meanwhile_counts() -> None:
    pace = Pace()
    pace.add(report(rows=1000, behind=3000), 1.0)
    pace.add(report(rows=1000, behind=2500), 2.0)  # 500 were written in that second
    assert pace.rows_per_second == 1000
    assert pace.seconds_to_go == pytest.approx(2500 / 750)
    pace.add(report(rows=0, behind=9000), 3.0)
    assert pace.seconds_to_go is None
    pace.add(report(rows=9000, behind=0), 4.0)
    assert pace.seconds_to_go == 0


def test_rates_are_of_the_last_minute() -> None:
    pace = Pace()
    pace.add(report(rows=1_000_000, behind=100), 1.0)
    for second in range(30, 200, 10):
        pace.add(report(rows=100, behind=100), float(second))
    assert pace.rows_per_second == pytest.approx(10)


def test_words() -> None:
    assert [seconds_in_words(each) for each in (3.2, 600, 9_000, 400_000)] == [
        "3 s",
        "10 min",
        "2.5 h",
        "5 d",
    ]


def test_the_lag_is_that_of_the_partition_furthest_back() -> None:
    ranges = [OffsetRange(P0, 0, 10), OffsetRange(P1, 0, 5)]
    reached = {P0: 50_000, P1: 70_000}
    assert batch_lag(ranges, {P0: 10, P1: 5}, reached, 100.0) == 0
    assert batch_lag(ranges, {P0: 10, P1: 9}, reached, 100.0) == 30
    assert batch_lag(ranges, {P0: 11, P1: 9}, reached, 100.0) == 50
    assert batch_lag(ranges, {P0: 11, P1: 9}, {}, 100.0) is None


def test_an_observer_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told = []

    class Faulty(LoadObserver):
        def batch(self, report: BatchReport) -> None:
            raise OSError("nobody listens")

    class Sound(LoadObserver):
        def batch(self, report: BatchReport) -> None:
            told.append(report.rows)

    LoadObservers([Faulty(), Sound()]).batch(report(rows=7, behind=0))
    assert told == [7]
    assert "Faulty: nobody listens" in caplog.text
