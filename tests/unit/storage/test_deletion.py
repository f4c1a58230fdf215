"""Removals that are due later, by a clock that may be set."""

from __future__ import annotations

from functools import partial

import pytest

from millstream.model.errors import StorageError
from millstream.storage.deletion import PendingRemovals

HOUR_MS = 3_600_000
T0 = 1_000 * HOUR_MS


def waiting(*due_ms: int) -> tuple[PendingRemovals, list[int]]:
    removals, removed = PendingRemovals(), list[int]()
    for each in due_ms:
        removals.add(each, "/logs", partial(removed.append, each))
    return removals, removed


def test_what_is_due_is_removed_in_order() -> None:
    removals, removed = waiting(T0 + 30, T0 + 10, T0 + 20)
    assert removals.next_ms == T0 + 10
    removals.run_due(T0 + 9)
    assert removed == []
    removals.run_due(T0 + 20)
    assert removed == [T0 + 10, T0 + 20]
    removals.run_due(T0 + HOUR_MS)
    assert removed == [T0 + 10, T0 + 20, T0 + 30]
    assert removals.next_ms is None


def test_a_clock_that_is_set_back_makes_nothing_wait_for_longer() -> None:
    removals, removed = waiting(T0 + 60_000, T0 + 120_000)
    removals.run_due(T0)
    removals.run_due(T0 - HOUR_MS)
    assert removed == []
    removals.run_due(T0 - HOUR_MS + 59_999)
    assert removed == []
    removals.run_due(T0 - HOUR_MS + 60_000)
    assert removed == [T0 + 60_000]
    removals.run_due(T0 - HOUR_MS + 120_000)
    assert removed == [T0 + 60_000, T0 + 120_000]


def test_one_that_fails_keeps_none_of_the_others() -> None:
    removals, removed = waiting(T0, T0 + 2)

    def fail() -> None:
        raise OSError("busy")

    removals.add(T0 + 1, "/logs", fail)
    with pytest.raises(StorageError, match="busy"):
        removals.run_due(T0 + 2)
    assert removed == [T0, T0 + 2]
