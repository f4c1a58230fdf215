"""The queue to the user's side: callbacks to run, failures to raise, and the calls that wait for
them.

Listeners and callbacks run on the user's side, never on the loop. The loop queues them here, and a
poll, or :meth:`UserSide.serve` for other calls, takes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.client.core.consumer.errors import (
    ConcurrentUseError,
    LogTruncationError,
    NoOffsetError,
    OffsetsOutOfRangeError,
    WakeupError,
)
from millstream.client.core.consumer.user_calls import UserCall
from millstream.client.core.loop import ClientLoop
from millstream.client.errors import ClosedError
from millstream.model.deferred import Deferred


class UserSide:
    """The queue of one consumer. ``has_data`` tells whether a poll could return records."""

    def __init__(self, loop: ClientLoop, has_data: Callable[[], bool]) -> None:
        self.attention = True
        """True if the user's next poll must call the core; read on any thread."""
        self._loop = loop
        self._has_data = has_data
        self._calls: deque[UserCall] = deque()
        self._failures: deque[Exception] = deque()
        self._waiter: Deferred[UserCall | None] | None = None
        self._server: Deferred[UserCall | None] | None = None
        self._is_woken = False
        self._is_closed = False

    @property
    def is_waiting(self) -> bool:
        """True while a poll of the user waits."""
        return self._waiter is not None

    # --- a poll ----------------------------------------------------------------------------------

    def wait(self, timeout_ms: float) -> Deferred[UserCall | None]:
        """Return a Deferred that completes once there is something for the user, or after the
        time-out.

        Its value is a function to run, or None if there may be records or the time has passed; it
        fails with an error for the user.
        """
        cell: Deferred[UserCall | None] = Deferred()
        if self._waiter is not None:
            cell.fail(ConcurrentUseError())
            return cell
        if self._settle(cell) or timeout_ms <= 0:
            if not cell.done:
                cell.complete(None)
            return cell
        self._waiter = cell
        timer = self._loop.call_at(self._loop.now_ms() + timeout_ms, partial(self._expire, cell))
        cell.on_done(lambda _: timer.cancel())
        return cell

    def abandon(self, cell: Deferred[UserCall | None]) -> None:
        """Abandon a Deferred of :meth:`wait` or :meth:`serve`.

        A result that it has for the user is kept for the next poll.
        """
        if self._waiter is cell:
            self._waiter = None
        if self._server is cell:
            self._server = None
        if not cell.done:
            cell.complete(None)
            return
        try:
            call = cell.result()
        except Exception as error:
            self._failures.appendleft(error)
            self.attention = True
            return
        if call is not None:
            self._calls.appendleft(call)
            self.attention = True

    def attend(self) -> None:
        """Request a poll: at once if the user waits in one."""
        self.attention = True
        self.data_came()

    def data_came(self) -> None:
        """End the waiting poll with what is available, or to poll again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not self._settle(waiter):
            # Nothing to return, but a rebalance to begin: poll again.
            waiter.complete(None)

    def wakeup(self) -> None:
        """Make the present poll, or the next one, raise WakeupError."""
        self._is_woken = True
        self.attend()

    def _expire(self, cell: Deferred[UserCall | None]) -> None:
        if self._waiter is cell:
            self._waiter = None
            cell.complete(None)

    def _settle(self, cell: Deferred[UserCall | None]) -> bool:
        """Complete the Deferred if there is anything for the user."""
        if self._is_woken:
            self._is_woken = False
            cell.fail(WakeupError())
        elif self._calls:
            cell.complete(self._calls.popleft())
        elif self._failures:
            cell.fail(self._failures.popleft())
        elif self._is_closed:
            cell.fail(ClosedError("the consumer was closed"))
        elif self._has_data():
            cell.complete(None)
        if self._calls or self._failures or self._is_woken:
            self.attention = True
        return cell.done

    # --- functions of the user -------------------------------------------------------------------

    def run(self, function: Callable[[], object]) -> Deferred[None]:
        """Run a function on the user's side; the Deferred completes when it has returned."""
        done: Deferred[None] = Deferred()
        if self._is_closed:
            done.complete(None)
            return done
        call = UserCall(function, done)
        server, self._server = self._server, None
        if server is not None:
            server.complete(call)
        else:
            self._calls.append(call)
            self.attend()
        return done

    def serve(self, target: Deferred[Any]) -> Deferred[UserCall | None]:
        """Return a Deferred of a function to run, or of None once ``target`` is complete.

        For calls other than poll that may need the user's callbacks.
        """
        cell: Deferred[UserCall | None] = Deferred()
        if self._calls:
            cell.complete(self._calls.popleft())
        elif target.done:
            cell.complete(None)
        else:
            self._server = cell
            target.on_done(lambda _: self._end_service(cell))
        return cell

    def _end_service(self, cell: Deferred[UserCall | None]) -> None:
        if self._server is cell:
            self._server = None
            cell.complete(None)

    # --- failures --------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """Raise a failure in the user's next poll.

        A retried operation may fail many times between two polls: that is raised once.
        """
        if not any(_says_the_same(each, error) for each in self._failures):
            self._failures.append(error)
        self.attend()

    def raise_failure(self) -> None:
        """Raise the first pending failure, if there is one."""
        if self._failures:
            raise self._failures.popleft()

    def drop_failures(self) -> None:
        """Drop pending failures about positions after a seek."""
        self._failures = deque(
            error
            for error in self._failures
            if not isinstance(error, NoOffsetError | OffsetsOutOfRangeError | LogTruncationError)
        )

    def close(self) -> None:
        """Run no more callbacks, and end the waiting poll."""
        self._is_closed = True
        for call in self._calls:
            call.done.complete(None)
        self._calls.clear()
        self.attend()


def _says_the_same(error: Exception, other: Exception) -> bool:
    return type(error) is type(other) and str(error) == str(other)
