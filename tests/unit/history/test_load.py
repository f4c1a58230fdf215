"""What becomes of outcomes, and what a run says of gaps, ends and torn transactions."""

from __future__ import annotations

import pytest

from millstream.client.errors import BrokerError, RecordTooLargeError, TimedOutError
from millstream.history.checker import (
    History,
    Kind,
    Outcome,
    Poll,
    find_gone,
    find_moved_back,
    find_torn,
)
from millstream.history.load import Record, certainly_not_written
from millstream.history.run import longest_gap
from millstream.model.errors import ErrorCode

P0 = ("t", 0)


@pytest.mark.parametrize(
    ("error", "certain"),
    [
        (RecordTooLargeError("x"), True),
        (BrokerError(ErrorCode.MESSAGE_TOO_LARGE, "x"), True),
        (BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "x"), True),
        (BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, "x"), False),
        (BrokerError(ErrorCode.REQUEST_TIMED_OUT, "x"), False),
        (TimedOutError("x"), False),
    ],
)
def test_only_what_surely_is_in_no_log_was_refused(error: Exception, certain: bool) -> None:
    assert certainly_not_written(error) is certain


def test_a_record_that_is_read_and_then_gone() -> None:
    history = History()
    history.polls += [Poll(P0, "r", 0, "a"), Poll(P0, "r", 1, "b"), Poll(P0, "s", 1, "b")]
    assert find_gone(history, {P0: {0: "a", 1: "b"}}) == []
    (found,) = find_gone(history, {P0: {0: "a"}})
    assert (found.kind, found.text) == (Kind.GONE, "r read 'b' at 1 of ('t', 0), and it is gone")
    assert len(find_gone(history, {P0: {0: "a", 1: "c"}})) == 1
    history.deletions[P0] = 2
    assert find_gone(history, {P0: {}}) == []


def test_a_transaction_of_which_a_part_is_there() -> None:
    final = {P0: {0: "a", 1: "b"}, ("t", 1): {0: "c"}}
    assert find_torn([["a", "c"], ["x", "y"]], final) == []
    (found,) = find_torn([["a", "z"]], final)
    assert found.kind is Kind.TORN
    assert "'z'" in found.text


def test_an_end_that_moves_back() -> None:
    assert find_moved_back([(P0, 3), (("t", 1), 1), (P0, 3), (P0, 5)]) == []
    (found,) = find_moved_back([(P0, 3), (P0, 2), (P0, 3)])
    assert found.kind is Kind.END_BACK


def test_the_longest_gap_is_that_of_the_worst_partition() -> None:
    record = Record("t", 2, "g", "x:")
    record.acknowledgements += [(0, 1.0), (1, 1.0), (0, 2.0), (0, 3.0), (1, 9.0)]
    assert longest_gap(record, 0.5, 9.5) == 8.0


def test_values_of_others_are_not_of_this_run() -> None:
    record = Record("t", 1, "g", "x:")
    send = record.sending("p", 1, 0, once=True)
    assert record.is_own(str(send.value))
    assert not record.is_own("y:p:1:0")
    record.acknowledged(send, 4)
    assert (send.outcome, send.offset) == (Outcome.ACKNOWLEDGED, 4)
