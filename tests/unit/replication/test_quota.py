"""The limit on bytes per second of replicas that catch up, with times by hand."""

from __future__ import annotations

import pytest

from millstream.replication.quota import UNLIMITED, ReplicationQuota, throttled_partitions


def quota(windows: int = 11, window_ms: float = 1000) -> ReplicationQuota:
    return ReplicationQuota(windows=windows, window_ms=window_ms)


def test_nothing_has_passed() -> None:
    assert quota().bytes_per_second(5) == 0
    assert not quota().is_exceeded(0, 5)
    assert quota().exceeded_for_ms(0, 5) == 0


def test_the_first_window_counts_in_full() -> None:
    counted = quota()
    counted.record(500, 0)
    assert counted.bytes_per_second(0) == 500
    assert counted.bytes_per_second(999) == 500
    assert counted.bytes_per_second(2000) == 250


def test_a_limit_that_is_met_is_not_exceeded() -> None:
    counted = quota()
    counted.record(100, 0)
    assert not counted.is_exceeded(100, 0)
    counted.record(1, 10)
    assert counted.is_exceeded(100, 10)


def test_without_a_limit_nothing_is_exceeded() -> None:
    counted = quota()
    counted.record(1 << 60, 0)
    assert not counted.is_exceeded(UNLIMITED, 0)
    assert counted.is_exceeded(1 << 50, 0)


def test_what_went_over_is_made_up_for() -> None:
    counted = quota()
    counted.record(5000, 0)
    assert counted.is_exceeded(1000, 4999)
    assert not counted.is_exceeded(1000, 5000)


def test_a_burst_is_forgotten_with_its_last_window() -> None:
    counted = quota(windows=3)
    counted.record(1_000_000, 0)
    assert counted.is_exceeded(1000, 2999)
    assert not counted.is_exceeded(1000, 3000)
    assert counted.bytes_per_second(3000) == 0


def test_samples_that_overlap_the_windows_count_whole() -> None:
    counted = quota(windows=2)
    counted.record(100, 0)
    counted.record(100, 900)
    counted.record(100, 1800)
    # The first sample ended at 900 and counts until 2900, from its beginning at 0.
    assert counted.bytes_per_second(2500) == 300 * 1000 / 2500
    assert counted.bytes_per_second(2900) == 100 * 1000 / 1100


def test_so_many_samples_are_kept_and_no_more() -> None:
    counted = quota(windows=2)
    for second in range(5):
        counted.record(100, second * 1000)
    # At most one more than there are windows: those of the seconds 3 and 4, for 2 is too old.
    assert counted.bytes_per_second(4000) == 200 * 1000 / 1000


@pytest.mark.parametrize("step_ms", [10, 130, 999])
def test_checking_before_each_fetch_keeps_to_the_limit(step_ms: int) -> None:
    counted, piece, limit = quota(), 1000, 20_000
    passed = 0
    for now_ms in range(0, 60_000, step_ms):
        while not counted.is_exceeded(limit, now_ms):
            counted.record(piece, now_ms)
            passed += piece
    assert passed <= limit * 60 * 1.1
    assert passed >= limit * 60 * 0.9


def test_how_long_to_wait() -> None:
    counted = quota()
    counted.record(1500, 0)
    wait_ms = counted.exceeded_for_ms(1000, 1200)
    assert wait_ms == pytest.approx(300)
    assert not counted.is_exceeded(1000, 1200 + wait_ms)
    counted.record(100_000, 1500)
    assert counted.exceeded_for_ms(1000, 1500) == 1000, "a window at most"
    assert counted.exceeded_for_ms(0, 1500) == 1000


def test_which_partitions_are_named() -> None:
    assert throttled_partitions((), 1) == frozenset()
    assert throttled_partitions(("*",), 1) is None
    assert throttled_partitions(("0:1", "1:2", "17:1"), 1) == {0, 17}
    assert throttled_partitions(("0:1",), 2) == frozenset()
