"""Writes that wait for their commit, fetches that wait for data."""

from __future__ import annotations

import pytest
from tests.unit.runtime.log_site import LogSite, Outcomes, append

from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.waiters import CommitWaiters, FetchWaiter

GONE = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def fault(_: object) -> None:
    raise RuntimeError("a fault of ours")


def test_writes_below_the_high_watermark_are_answered_in_order() -> None:
    waiters, outcomes = CommitWaiters(), Outcomes()
    for offset in (0, 4, 5):
        waiters.add(offset, outcomes.note(f"{offset} "))
    waiters.release(5)
    assert outcomes == ["0 ok", "4 ok"]
    waiters.release(5)
    waiters.release(6)
    assert outcomes == ["0 ok", "4 ok", "5 ok"]


def test_a_duplicate_is_answered_no_later_than_the_write_before_it() -> None:
    waiters, outcomes = CommitWaiters(), Outcomes()
    waiters.add(5, outcomes.note("new "))
    waiters.add(2, outcomes.note("again "))
    waiters.release(3)
    assert outcomes == []
    waiters.release(6)
    assert outcomes == ["new ok", "again ok"]


def test_a_failure_answers_every_write_once() -> None:
    waiters, outcomes = CommitWaiters(), Outcomes()
    for offset in (0, 1):
        waiters.add(offset, outcomes.note())
    waiters.fail(GONE)
    waiters.fail(GONE)
    waiters.release(10)
    assert outcomes == ["NOT_LEADER_OR_FOLLOWER"] * 2


def test_a_callback_that_raises_keeps_no_other_write_from_its_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiters, outcomes = CommitWaiters(), Outcomes()
    for callback in (outcomes.note(), fault, outcomes.note()):
        waiters.add(0, callback)
    waiters.release(1)
    assert "a fault of ours" in caplog.text
    assert outcomes == ["ok", "ok"]
    for callback in (fault, outcomes.note()):
        waiters.add(1, callback)
    waiters.fail(GONE)
    assert outcomes[2:] == ["NOT_LEADER_OR_FOLLOWER"]


# Fetches


class Parked:
    """A fetch at two partitions."""

    def __init__(self, missing_bytes: int = 1, wait_ms: float = 500) -> None:
        self.site = LogSite()
        self.site.create("t", 2, flush_policy="os")
        self.woken: list[bool] = []
        self.waiter = FetchWaiter(
            self.site.clock,
            partitions=self.partitions,
            missing_bytes=missing_bytes,
            wait_ms=wait_ms,
            on_woken=self.woken.append,
        )

    @property
    def partitions(self) -> list[Partition]:
        return [self.site.partition("t", index) for index in range(2)]

    def stands_anywhere(self) -> bool:
        return any(self.waiter in partition.fetch_waiters for partition in self.partitions)


def test_data_at_any_partition_wakes_a_fetch_after_what_runs_now() -> None:
    parked = Parked()
    append(parked.partitions[1], b"a")
    append(parked.partitions[0], b"b")
    assert parked.woken == []
    assert not parked.stands_anywhere()
    parked.site.clock.settle()
    assert parked.woken == [True]
    assert parked.site.clock.timers_running == 0


def test_bytes_of_all_partitions_add_up() -> None:
    parked = Parked(missing_bytes=1000)
    append(parked.partitions[0], b"a" * 450)
    append(parked.partitions[1], b"b" * 300)
    parked.site.clock.settle()
    assert parked.woken == []
    append(parked.partitions[1], b"b" * 300)
    parked.site.clock.settle()
    assert parked.woken == [True]


def test_the_time_wakes_a_fetch_once() -> None:
    parked = Parked(wait_ms=500)
    parked.site.clock.advance(499)
    assert parked.woken == []
    parked.site.clock.advance(1)
    assert parked.woken == [False]
    assert not parked.stands_anywhere()
    append(parked.partitions[0], b"a")
    parked.waiter.wake()
    parked.site.clock.advance(1000)
    assert parked.woken == [False]


def test_a_change_wakes_a_fetch_whatever_it_misses() -> None:
    parked = Parked(missing_bytes=1000)
    parked.partitions[0].wake_readers()
    parked.site.clock.settle()
    assert parked.woken == [False]


def test_a_fetch_that_was_woken_waits_at_no_more_partitions() -> None:
    parked = Parked()
    append(parked.partitions[0], b"a")
    parked.waiter.watch(parked.partitions)
    assert not parked.stands_anywhere()
    parked.site.clock.settle()
    assert parked.woken == [True]


def test_the_longest_wait_there_is() -> None:
    parked = Parked(wait_ms=2**31 - 1)
    parked.site.clock.advance(2**31 - 2)
    assert parked.woken == []
    parked.site.clock.advance(1)
    assert parked.woken == [False]


def test_a_fetch_that_is_cancelled_is_told_nothing() -> None:
    parked = Parked()
    parked.waiter.cancel()
    assert not parked.stands_anywhere()
    assert parked.site.clock.timers_running == 0
    append(parked.partitions[0], b"a")
    parked.site.clock.advance(1000)
    assert parked.woken == []


def test_a_fetch_may_be_cancelled_when_it_was_about_to_be_told() -> None:
    parked = Parked()
    append(parked.partitions[0], b"a")
    parked.waiter.cancel()
    parked.waiter.cancel()
    parked.site.clock.advance(1000)
    assert parked.woken == []
