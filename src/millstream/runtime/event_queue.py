"""Runs coroutines one after the other: the next starts when the one before has ended."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from millstream.model.deferred import Deferred, spawn

T = TypeVar("T")

Event: TypeAlias = Callable[[], Coroutine[Deferred[Any], None, T]]


class EventQueue:
    """A queue with one runner. Events may submit further events, which come last."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Deferred[Any]]] = deque()
        self._running = False

    def submit(self, event: Event[T]) -> Deferred[T]:
        """Run ``event`` after all that were given before; its outcome fills the Deferred."""
        outcome: Deferred[T] = Deferred()

        def start() -> Deferred[T]:
            done = spawn(event())
            done.on_done(lambda ended: _hand_over(ended, outcome))
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


def _hand_over(ended: Deferred[T], outcome: Deferred[T]) -> None:
    try:
        value = ended.result()
    except BaseException as error:
        outcome.fail(error)
    else:
        outcome.complete(value)
