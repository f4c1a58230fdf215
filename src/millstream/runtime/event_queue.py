"""Runs coroutines one after the other: the next starts when the one before has ended.

What an event raises is the outcome of that event and of no other. A callback on an outcome that
raises is logged; the queue goes on with the next event.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from millstream.model.deferred import Deferred, spawn

log = logging.getLogger(__name__)

T = TypeVar("T")

Event: TypeAlias = Callable[[], Coroutine[Deferred[Any], None, T]]


class EventQueue:
    """A queue with one runner. An event may submit further events, which run after all others."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Deferred[Any]]] = deque()
        self._running = False

    def submit(self, event: Event[T]) -> Deferred[T]:
        """Run ``event`` after all that were submitted before. The Deferred is filled with what the
        coroutine returns or raises, or with what ``event`` itself raises.
        """
        outcome: Deferred[T] = Deferred()

        async def started() -> T:
            return await event()

        def start() -> Deferred[T]:
            done = spawn(started())
            done.on_done(lambda ended: _fill(outcome, ended))
            return done

        self._waiting.append(start)
        if not self._running:
            self._run()
        return outcome

    def _run(self) -> None:
        """Start events until one has to wait; its end calls this again."""
        self._running = True
        while self._waiting:
            done = self._waiting.popleft()()
            if not done.done:
                done.on_done(lambda _: self._run())
                return
        self._running = False


def _fill(outcome: Deferred[T], ended: Deferred[T]) -> None:
    """Fill ``outcome`` with how an event has ended; log a callback on it that raises."""
    failure: BaseException | None = None
    try:
        value = ended.result()
    except BaseException as error:
        failure = error
    try:
        if failure is None:
            outcome.complete(value)
        else:
            outcome.fail(failure)
    except Exception:
        log.exception("a callback on the outcome of an event has raised")
