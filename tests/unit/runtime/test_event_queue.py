"""Events run one after the other, whatever they wait for."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest

from millstream.model.deferred import Deferred
from millstream.runtime.event_queue import EventQueue


def test_an_event_waits_for_the_one_before() -> None:
    events = EventQueue()
    gates: list[Deferred[None]] = [Deferred(), Deferred()]
    trace: list[str] = []

    async def event(index: int) -> int:
        trace.append(f"start {index}")
        await gates[index]
        trace.append(f"end {index}")
        return index

    outcomes = [events.submit(lambda: event(0)), events.submit(lambda: event(1))]
    assert trace == ["start 0"]
    gates[1].complete(None)
    assert trace == ["start 0"]
    gates[0].complete(None)
    assert trace == ["start 0", "end 0", "start 1", "end 1"]
    assert [outcome.result() for outcome in outcomes] == [0, 1]


def test_a_failed_event_lets_the_next_one_run() -> None:
    events = EventQueue()

    async def fail() -> None:
        raise ValueError("no")

    async def succeed() -> str:
        return "yes"

    failed, done = events.submit(fail), events.submit(succeed)
    with pytest.raises(ValueError, match="no"):
        failed.result()
    assert done.result() == "yes"


def test_an_event_may_submit_another_which_comes_last() -> None:
    events = EventQueue()
    trace: list[str] = []

    async def say(word: str) -> None:
        trace.append(word)

    async def first() -> None:
        events.submit(lambda: say("submitted"))
        trace.append("first")

    gate: Deferred[None] = Deferred()

    async def blocked() -> None:
        await gate

    events.submit(blocked)
    events.submit(first)
    events.submit(lambda: say("second"))
    gate.complete(None)
    assert trace == ["first", "second", "submitted"]


def test_thousands_of_events_do_not_nest() -> None:
    events = EventQueue()
    gate: Deferred[None] = Deferred()
    count = 0

    async def wait() -> None:
        await gate

    async def add() -> None:
        nonlocal count
        count += 1

    events.submit(wait)
    for _ in range(5000):
        events.submit(add)
    gate.complete(None)
    assert count == 5000


def test_a_listener_that_raises_does_not_stop_the_queue(caplog: pytest.LogCaptureFixture) -> None:
    events = EventQueue()
    gate: Deferred[None] = Deferred()
    trace: list[str] = []

    async def wait() -> None:
        await gate

    async def say(word: str) -> None:
        trace.append(word)

    def listen(done: Deferred[None]) -> None:
        trace.append("told")
        raise ValueError("a listener is broken")

    events.submit(wait)
    events.submit(lambda: say("first")).on_done(listen)
    last = events.submit(lambda: say("second"))
    gate.complete(None)
    assert trace == ["first", "told", "second"]
    assert last.done
    events.submit(lambda: say("third"))
    assert trace[-1] == "third"
    assert "a listener is broken" in caplog.text


def test_an_event_that_cannot_be_started_fails_alone() -> None:
    events = EventQueue()

    def broken() -> Coroutine[Deferred[Any], None, None]:
        raise ValueError("no coroutine")

    async def succeed() -> str:
        return "yes"

    failed = events.submit(broken)
    with pytest.raises(ValueError, match="no coroutine"):
        failed.result()
    assert events.submit(succeed).result() == "yes"
