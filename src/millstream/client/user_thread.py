"""The user's thread at a blocking consumer: calls the core on its loop, and runs callbacks here.

The core's :class:`UserSide` queues functions of the user; whatever call waits takes them and runs
them on the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from millstream.client.core.consumer.user_calls import UserCall
from millstream.client.core.consumer.user_side import UserSide
from millstream.client.errors import ClosedError, ForkedError
from millstream.client.thread_loop import ThreadLoop
from millstream.model.deferred import Deferred, spawn

T = TypeVar("T")


class UserThread:
    """Calls into one core."""

    def __init__(self, loop: ThreadLoop, user: UserSide) -> None:
        self._loop = loop
        self._user = user

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop and return what it returns."""
        return self._loop.submit(lambda: Deferred.of(function())).result()

    def run(self, begin: Callable[[], Coroutine[Deferred[Any], None, T]]) -> T:
        """Run a coroutine on the loop and wait for it."""
        return self._loop.submit(lambda: spawn(begin())).result()

    def visit(self, poll: Callable[[], Deferred[UserCall | None]]) -> None:
        """Poll the core once, and run the callback that it returns."""
        call = self._next_call(poll)
        if call is not None:
            self._serve(call)

    def drive(self, begin: Callable[[], Coroutine[Deferred[Any], None, None]]) -> None:
        """Run a coroutine that may need callbacks of the user, which run here.

        Raises its error, else the first one of the callbacks, once it has ended.
        """
        target: Deferred[None] = self.call(lambda: spawn(begin()))
        failure: Exception | None = None
        while True:
            call = self._next_call(lambda: self._user.serve(target))
            if call is None:
                break
            try:
                self._serve(call)
            except Exception as error:
                # A callback that fails must not keep the consumer from closing.
                failure = failure or error
        self.call(target.result)
        if failure is not None:
            raise failure

    def _next_call(self, begin: Callable[[], Deferred[UserCall | None]]) -> UserCall | None:
        cells: list[Deferred[UserCall | None]] = []

        def start() -> Deferred[UserCall | None]:
            cells.append(begin())
            return cells[0]

        def put_back() -> None:
            for cell in cells:
                self._user.abandon(cell)

        future: Future[UserCall | None] | None = None
        try:
            future = self._loop.submit(start)
            return future.result()
        except (ClosedError, ForkedError):
            raise
        except BaseException as error:
            if future is None or not (future.done() and future.exception() is error):
                # Interrupted (Ctrl-C): a late result is kept for the next poll.
                self._loop.post(put_back)
            raise

    def _serve(self, call: UserCall) -> None:
        try:
            call.function()
        finally:
            self._loop.post(partial(call.done.complete, None))
