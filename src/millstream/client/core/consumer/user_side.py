"""What waits for the user: functions to run, failures to hear of, and who waits for either.

Listeners and callbacks are the user's and run where the user is, never on the loop. So the loop
leaves them here, and a poll, or :meth:`UserSide.serve` for other calls, takes them away.
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
    """Of one consumer. ``has_data`` says whether a poll could hand records out."""

    def __init__(self, loop: ClientLoop, has_data: Callable[[], bool]) -> None:
        self.attention = True
        """True when the user's next poll must come to the core; read on any thread."""
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
        """Return a cell that is filled once there is something for the user, or in the end.

        With a function to run, with None when records may be there or the time is over; it fails
        with what the user must hear.
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
        """Nobody waits for this cell of :meth:`wait` or :meth:`serve` any more.

        What it was given for the user is kept for the next poll.
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
        """Have the user poll: at once if it waits."""
        self.attention = True
        self.data_came()

    def data_came(self) -> None:
        """End the poll that waits: with what there is, or to poll again."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not self._settle(waiter):
            # Nothing to hand over, but a rebalance to begin: poll again.
            waiter.complete(None)

    def wakeup(self) -> None:
        """Make the poll under way, or the next one, raise WakeupError."""
        self._is_woken = True
        self.attend()

    def _expire(self, cell: Deferred[UserCall | None]) -> None:
        if self._waiter is cell:
            self._waiter = None
            cell.complete(None)

    def _settle(self, cell: Deferred[UserCall | None]) -> bool:
        """Fill the cell if there is anything for the user."""
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
        """Have the user's side run a function; the cell is filled when it has."""
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
        """Return a cell for a function to run, or None once ``target`` is filled.

        For whoever waits for something other than a poll that may need the user's functions.
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
        """Tell the user of a failure, in its next poll.

        What is tried again while nobody polls may fail many times over: that is told once.
        """
        if not any(_says_the_same(each, error) for each in self._failures):
            self._failures.append(error)
        self.attend()

    def raise_failure(self) -> None:
        """Raise the first failure that the user has not heard of, if there is one."""
        if self._failures:
            raise self._failures.popleft()

    def drop_failures(self) -> None:
        """A seek answers what was told about positions."""
        self._failures = deque(
            error
            for error in self._failures
            if not isinstance(error, NoOffsetError | OffsetsOutOfRangeError | LogTruncationError)
        )

    def close(self) -> None:
        """Run nothing more, and end the poll that waits."""
        self._is_closed = True
        for call in self._calls:
            call.done.complete(None)
        self._calls.clear()
        self.attend()


def _says_the_same(error: Exception, other: Exception) -> bool:
    return type(error) is type(other) and str(error) == str(other)
