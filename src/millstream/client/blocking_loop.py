"""The loop that the calling thread turns while it waits: no thread, for a program that does one
thing after the other (Spark's executors).

Nothing happens between two waits: timers that are due run at the beginning of the next one, and
bytes that arrive stay with the system.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.client.errors import TimedOutError
from millstream.client.selector_loop import SelectorLoop, log, look_up, no_address
from millstream.client.settings import Address
from millstream.client.socket_transport import SocketTransport
from millstream.model.deferred import Deferred

T = TypeVar("T")


class BlockingLoop(SelectorLoop):
    """Implements ``core.loop.ClientLoop``.

    An error in a callback is raised by the wait that the callback ran in: what it should have
    completed may never be, and some waits have no limit of their own.
    """

    _failure: Exception | None = None

    def resolve(self, address: Address, transport: SocketTransport) -> None:
        """Look the name up here: the caller waits for it anyway."""
        try:
            found = look_up(address)
        except (OSError, UnicodeError) as error:
            failure = no_address(error)
            self.call_soon(lambda: transport.fail(failure))
        else:
            self.call_soon(lambda: transport.try_addresses(found))

    def run_blocking(self, work: Callable[[], T]) -> Deferred[T]:
        """Run ``work`` here."""
        outcome: Deferred[T] = Deferred()
        try:
            outcome.complete(work())
        except Exception as error:
            outcome.fail(error)
        return outcome

    def wait_for(self, outcome: Deferred[T], timeout_ms: float, about: str) -> T:
        """Turn the loop until there is an outcome; TimedOutError after so long, and the error of a
        callback that failed meanwhile.
        """
        self._failure = None
        deadline_ms = self.now_ms() + timeout_ms
        timer = self.call_at(deadline_ms, lambda: _fail(outcome, about))
        try:
            while not outcome.done:
                self.run_once()
                self._raise_failure(unless=outcome.done)
        finally:
            timer.cancel()
            self._failure = None
        return outcome.result()

    def _raise_failure(self, *, unless: bool) -> None:
        if self._failure is not None and not unless:
            raise self._failure

    def guard(self, callback: Callable[[], None]) -> None:
        """Run a callback. The interrupt of a user is not an error of the callback."""
        try:
            callback()
        except Exception as error:
            log.exception("an error in a callback of the client")
            self._failure = self._failure or error


def _fail(outcome: Deferred[T], about: str) -> None:
    if not outcome.done:
        outcome.fail(TimedOutError(about))
