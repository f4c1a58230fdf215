"""A value that may not be available yet: the only way in which Millstream waits.

A :class:`Deferred` is independent of event loops. Completing it runs the callbacks at once, in the
order in which they were added, so the same code runs under the broker's loop and under a seeded
simulator. Coroutines may await one; :func:`spawn` drives such a coroutine without asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
U = TypeVar("U")

_PENDING: Any = object()


class Deferred(Generic[T]):
    """A cell that is completed once, with a value or with an exception."""

    __slots__ = ("_callbacks", "_exception", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        """True once a value or an exception is there."""
        self._value: T = _PENDING
        self._exception: BaseException | None = None
        self._callbacks: list[Callable[[Deferred[T]], None]] = []

    @classmethod
    def of(cls, value: T) -> Deferred[T]:
        """Return a cell that is already filled."""
        cell: Deferred[T] = cls()
        cell._value = value
        cell.done = True
        return cell

    def result(self) -> T:
        """Return the value or raise the exception. The Deferred must not be pending."""
        if self._exception is not None:
            raise self._exception
        assert self.done, "asked a pending Deferred for its value"
        return self._value

    def complete(self, value: T) -> None:
        """Complete the cell and run its callbacks; completing it twice is a programming error."""
        assert not self.done, "a Deferred is filled once"
        self._value = value
        self.done = True
        callbacks = self._callbacks
        if len(callbacks) == 1:
            self._callbacks = []
            callbacks[0](self)
        elif callbacks:
            self._run_callbacks()

    def fail(self, exception: BaseException) -> None:
        """Fill the cell with an exception and run its callbacks."""
        assert not self.done, "a Deferred is filled once"
        self._exception = exception
        self.done = True
        self._run_callbacks()

    def on_done(self, callback: Callable[[Deferred[T]], None]) -> None:
        """Run ``callback(self)`` once filled: at once if it is already."""
        if self.done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def then(self, function: Callable[[T], U]) -> Deferred[U]:
        """Return a cell for what ``function`` makes of this one's value. It fails with what this
        one fails with, or with what ``function`` raises. Costs less than a coroutine that awaits.
        """
        outcome: Deferred[U] = Deferred()

        def settle(filled: Deferred[T]) -> None:
            try:
                value = function(filled.result())
            except BaseException as exception:
                outcome.fail(exception)
            else:
                outcome.complete(value)

        self.on_done(settle)
        return outcome

    def __await__(self) -> Generator[Deferred[Any], None, T]:
        if not self.done:
            yield self
        return self.result()

    def _run_callbacks(self) -> None:
        """Run every callback, also after one that raises; then raise the first exception."""
        callbacks, self._callbacks = self._callbacks, []
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure


def spawn(coroutine: Coroutine[Deferred[Any], None, T]) -> Deferred[T]:
    """Run a coroutine that awaits Deferreds; its result or exception fills the returned one."""
    outcome: Deferred[T] = Deferred()

    def step(ready: Deferred[Any] | None) -> None:
        while True:
            try:
                waited = coroutine.send(None)
            except StopIteration as stop:
                outcome.complete(cast(T, stop.value))
                return
            except BaseException as exception:
                outcome.fail(exception)
                return
            if not waited.done:
                waited.on_done(step)
                return

    step(None)
    return outcome
