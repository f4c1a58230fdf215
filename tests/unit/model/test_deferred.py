"""A value that may not be there yet, and coroutines that wait for it without a loop."""

from __future__ import annotations

import pytest

from millstream.model.deferred import Deferred, spawn


def test_callbacks_run_in_order_and_a_late_one_runs_at_once() -> None:
    cell: Deferred[int] = Deferred()
    seen: list[str] = []
    cell.on_done(lambda ready: seen.append(f"first {ready.result()}"))
    cell.on_done(lambda ready: seen.append(f"second {ready.result()}"))
    cell.complete(7)
    cell.on_done(lambda ready: seen.append(f"late {ready.result()}"))
    assert seen == ["first 7", "second 7", "late 7"]


def test_none_is_a_value() -> None:
    cell: Deferred[None] = Deferred()
    assert not cell.done
    cell.complete(None)
    assert cell.done


def test_a_cell_is_filled_once() -> None:
    cell = Deferred.of(1)
    with pytest.raises(AssertionError):
        cell.complete(2)
    with pytest.raises(AssertionError):
        cell.fail(ValueError())


def test_a_coroutine_goes_on_when_what_it_awaits_is_there() -> None:
    first: Deferred[int] = Deferred()
    second: Deferred[int] = Deferred()

    async def add() -> int:
        return await first + await second

    outcome = spawn(add())
    second.complete(2)
    assert not outcome.done
    first.complete(40)
    assert outcome.result() == 42


def test_awaiting_filled_cells_needs_no_stack() -> None:
    async def count() -> int:
        total = 0
        for _ in range(50_000):
            total += await Deferred.of(1)
        return total

    assert spawn(count()).result() == 50_000


def test_an_exception_travels_through_the_coroutine() -> None:
    cell: Deferred[int] = Deferred()

    async def recover() -> str:
        try:
            await cell
        except KeyError as error:
            return f"caught {error}"
        return "nothing"

    outcome = spawn(recover())
    cell.fail(KeyError("lost"))
    assert outcome.result() == "caught 'lost'"

    async def fail() -> None:
        await Deferred.of(None)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        spawn(fail()).result()


def test_what_follows_a_value_is_made_of_it_now_or_later() -> None:
    cell: Deferred[int] = Deferred()
    text = cell.then(str)
    assert not text.done
    cell.complete(7)
    assert text.result() == "7"
    assert cell.then(lambda value: value + 1).result() == 8


def test_what_follows_fails_as_the_value_and_as_what_is_made_of_it() -> None:
    cell: Deferred[int] = Deferred()
    text = cell.then(str)
    cell.fail(KeyError("lost"))
    with pytest.raises(KeyError, match="lost"):
        text.result()
    with pytest.raises(ZeroDivisionError):
        Deferred.of(0).then(lambda value: 1 // value).result()
