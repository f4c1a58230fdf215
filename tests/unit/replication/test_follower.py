"""The follower's rules: which answers count, where a log is cut, when it pauses."""

from __future__ import annotations

import pytest

from millstream.model.broker import BrokerId
from millstream.model.epoch_end import EpochEndOffset
from millstream.model.errors import ErrorCode
from millstream.replication.divergence import is_diverging, truncation_offset
from millstream.replication.follower import (
    Append,
    FetchAnswer,
    FetchPosition,
    FollowerEffect,
    FollowerReplication,
    FollowerRules,
    LogView,
    ReadState,
    RestartAt,
    Truncate,
    high_watermark_after,
    last_fetched_epoch,
)

LAG_MS = 10_000
UNKNOWN = EpochEndOffset(-1, -1)
ASKED = FetchPosition(5, 100, 4, 0)


def follower() -> FollowerReplication:
    return FollowerReplication(BrokerId(2), 5, FollowerRules(LAG_MS, 1_000))


def answered(
    machine: FollowerReplication,
    answer: FetchAnswer,
    *,
    asked: FetchPosition = ASKED,
    end: int = 100,
    high_watermark: int = 80,
    own_end: EpochEndOffset = UNKNOWN,
    now_ms: float = 0,
) -> tuple[FollowerEffect, ...]:
    view = LogView(end, high_watermark, lambda _: own_end)
    return machine.on_answer(asked, answer, view, now_ms)


def test_records_are_appended_and_nothing_is_waited_for() -> None:
    machine = follower()
    assert answered(machine, FetchAnswer(high_watermark=90, has_records=True)) == (Append(),)
    assert machine.paused_until_ms == float("-inf")


def test_an_answer_to_another_log_end_does_not_count() -> None:
    """It was asked for before a truncation, or has been appended already."""
    assert answered(follower(), FetchAnswer(has_records=True), end=99) == ()


def test_an_answer_of_another_leadership_does_not_count() -> None:
    asked = FetchPosition(4, 100, 4, 0)
    assert answered(follower(), FetchAnswer(has_records=True), asked=asked) == ()


def test_there_is_no_truncation_to_the_high_watermark() -> None:
    """KIP-101: what lies above a follower's high watermark may be committed."""
    machine = follower()
    position = machine.position(log_end_offset=100, log_start_offset=10, latest_epoch=4)
    assert position == FetchPosition(5, 100, 4, 10)


def test_a_diverging_epoch_cuts_to_the_smaller_end() -> None:
    """KIP-279: the follower's own end for that epoch may lie below the leader's."""
    answer = FetchAnswer(diverging=EpochEndOffset(3, 95))
    assert answered(follower(), answer, own_end=EpochEndOffset(3, 90)) == (Truncate(90, False),)
    assert answered(follower(), answer, own_end=EpochEndOffset(3, 98)) == (Truncate(95, False),)
    assert answered(follower(), answer, own_end=EpochEndOffset(2, 85)) == (Truncate(85, False),)


def test_a_truncation_below_the_own_high_watermark_is_reported() -> None:
    answer = FetchAnswer(diverging=EpochEndOffset(3, 70))
    assert answered(follower(), answer, own_end=EpochEndOffset(3, 90)) == (Truncate(70, True),)


def test_a_divergence_that_cuts_nothing_pauses_and_does_not_turn_in_a_circle() -> None:
    machine = follower()
    answer = FetchAnswer(diverging=EpochEndOffset(3, 100))
    assert answered(machine, answer, own_end=EpochEndOffset(3, 100)) == ()
    assert machine.paused_until_ms == 50


def test_a_log_that_ends_before_the_leaders_start_restarts_there() -> None:
    answer = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=500)
    assert answered(follower(), answer) == (RestartAt(500),)


def test_a_log_that_ends_where_the_leaders_begins_may_have_parted_from_it() -> None:
    """The leader says so where it has forgotten the epoch of the last record."""
    kept = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=100)
    assert answered(follower(), kept) == (RestartAt(100),)
    earlier = FetchAnswer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=99)
    assert answered(follower(), earlier) == ()


def test_refusals_pause_longer_each_time() -> None:
    machine = follower()
    pauses = []
    for moment in (0, 2000, 4000, 6000, 8000, 10_000):
        answered(machine, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER), now_ms=moment)
        pauses.append(machine.paused_until_ms - moment)
    assert pauses == [50, 100, 200, 400, 800, 1000]
    answered(machine, FetchAnswer(), now_ms=12_000)
    answered(machine, FetchAnswer(ErrorCode.FENCED_LEADER_EPOCH), now_ms=12_000)
    assert machine.paused_until_ms == 12_050


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ],
)
def test_after_twice_the_lag_time_the_stored_state_is_read(error: ErrorCode) -> None:
    machine = follower()
    assert answered(machine, FetchAnswer(error), now_ms=0) == ()
    assert answered(machine, FetchAnswer(error), now_ms=2 * LAG_MS) == ()
    assert answered(machine, FetchAnswer(error), now_ms=2 * LAG_MS + 1) == (ReadState(),)
    assert answered(machine, FetchAnswer(error), now_ms=2 * LAG_MS + 2) == ()


def test_a_leader_that_is_not_reached_counts_as_a_refusal() -> None:
    machine = follower()
    assert machine.on_no_answer(0) == ()
    assert machine.on_no_answer(2 * LAG_MS + 1) == (ReadState(),)


def test_the_high_watermark_follows_the_leaders_as_far_as_the_log_goes() -> None:
    assert high_watermark_after(own=10, leader_high_watermark=50, log_end_offset=100) == 50
    assert high_watermark_after(own=10, leader_high_watermark=150, log_end_offset=100) == 100


def test_the_high_watermark_does_not_go_back_for_a_leader_that_lags() -> None:
    assert high_watermark_after(own=60, leader_high_watermark=50, log_end_offset=100) == 60


def test_an_empty_log_has_no_last_epoch() -> None:
    assert (last_fetched_epoch(4, 0), last_fetched_epoch(4, 1)) == (-1, 4)


# Divergence


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (EpochEndOffset(4, 100), False),
        (EpochEndOffset(4, 120), False),
        (EpochEndOffset(4, 99), True),
        (EpochEndOffset(3, 120), True),
    ],
)
def test_logs_part_where_an_epoch_is_smaller_or_ends_before(
    end: EpochEndOffset, expected: bool
) -> None:
    assert is_diverging(end, last_fetched_epoch=4, fetch_offset=100) is expected


def test_a_follower_without_records_has_nothing_to_part_from() -> None:
    assert not is_diverging(UNKNOWN, last_fetched_epoch=-1, fetch_offset=0)


def test_a_log_without_that_epoch_goes_back_to_the_leaders_end() -> None:
    assert truncation_offset(EpochEndOffset(3, 70), UNKNOWN, log_end_offset=100) == 70
    assert truncation_offset(EpochEndOffset(3, 170), UNKNOWN, log_end_offset=100) == 100
