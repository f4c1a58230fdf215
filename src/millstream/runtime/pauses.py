"""Waiting for a while, and not for longer than that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn

T = TypeVar("T")


def pause(clock: Clock, delay_ms: float) -> Deferred[None]:
    """Return what is filled after a while."""
    over: Deferred[None] = Deferred()
    clock.call_later(delay_ms, lambda: over.complete(None))
    return over


def next_pass(clock: Clock) -> Deferred[None]:
    """Return what is filled in the next pass of the loop: what waits there is done before."""
    over: Deferred[None] = Deferred()
    clock.call_soon(lambda: over.complete(None))
    return over


def at_most(clock: Clock, work: Deferred[T], limit_ms: float) -> Deferred[T | None]:
    """Return what is filled as ``work`` is, or with None once the limit has passed.

    The work goes on then, and nobody hears of its end.
    """
    outcome: Deferred[T | None] = Deferred()

    def too_late() -> None:
        if not outcome.done:
            outcome.complete(None)

    def done(work: Deferred[T]) -> None:
        if outcome.done:
            return
        timer.cancel()
        try:
            value = work.result()
        except Exception as error:
            outcome.fail(error)
        else:
            outcome.complete(value)

    timer = clock.call_later(limit_ms, too_late)
    work.on_done(done)
    return outcome


def until(
    clock: Clock, condition: Callable[[], bool], *, limit_ms: float, look_ms: float
) -> Deferred[bool]:
    """Return what is filled with True once a condition holds, looked at every ``look_ms``, and with
    False once the limit has passed.
    """
    return spawn(_until(clock, condition, clock.monotonic_ms() + limit_ms, look_ms))


async def _until(
    clock: Clock, condition: Callable[[], bool], deadline_ms: float, look_ms: float
) -> bool:
    while not condition():
        if clock.monotonic_ms() >= deadline_ms:
            return False
        await pause(clock, look_ms)
    return True
