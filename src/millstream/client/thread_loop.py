"""The loop behind the blocking API: one background thread with a selector.

Other threads submit work with :meth:`ThreadLoop.submit` and :meth:`ThreadLoop.post`; a byte
through a pair of sockets wakes the thread. Host names are resolved, and tokens fetched, on
short-lived threads, so that a slow server delays no heartbeat. After :meth:`close` no socket is
left, and no thread but one whose function does not return; submitted work without a result fails
with ClosedError.

The thread references its loop, so the loop must not reference its owner: see
:meth:`ThreadLoop.belongs_to`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import selectors
import socket
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from millstream.client.core.security import PLAINTEXT, Security
from millstream.client.errors import ClosedError, ForkedError, WaitInCallbackError
from millstream.client.selector_loop import SelectorLoop, look_up, no_address
from millstream.client.settings import Address
from millstream.client.socket_transport import SocketTransport
from millstream.model.deferred import Deferred
from millstream.platform import after_fork_in_child

T = TypeVar("T")

_HELPERS_S: Final = 5.0
"""How long the end of a loop waits for a host name, or a token, that nobody needs any more."""

log = logging.getLogger("millstream.client")
_local: Final = threading.local()


def check_may_wait() -> None:
    """Raise WaitInCallbackError on the thread of a loop, which must never block on another one."""
    if getattr(_local, "is_loop", False):
        raise WaitInCallbackError("a callback of the client must not wait")


_LOOPS: Final[weakref.WeakSet[ThreadLoop]] = weakref.WeakSet()


def _after_fork() -> None:
    """Mark the loops of the parent process as forked: their threads do not exist in the child."""
    for loop in list(_LOOPS):
        loop.after_fork()


after_fork_in_child(_after_fork)


class ThreadLoop(SelectorLoop):
    """Implements ``core.loop.ClientLoop``. Its methods other than ``submit``, ``post``, ``close``
    and ``check_process`` are for the thread itself.
    """

    def __init__(
        self,
        name: str = "millstream-client",
        *,
        send_bytes: int = -1,
        receive_bytes: int = -1,
        security: Security = PLAINTEXT,
    ) -> None:
        super().__init__(send_bytes=send_bytes, receive_bytes=receive_bytes, security=security)
        self.after_fork: Callable[[], None] = lambda: None
        """Called in a process that was forked from the one that made the loop."""
        self._process_id = os.getpid()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_awake = False
        self._closing = False
        # A signal handler may call this while its thread is inside of it.
        self._lock = threading.RLock()
        self._unsettled: set[concurrent.futures.Future[Any]] = set()
        self._helpers: set[threading.Thread] = set()
        self._wake_out, self._wake_in = socket.socketpair()
        for each in (self._wake_out, self._wake_in):
            each.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        _LOOPS.add(self)

    # --- for other threads -----------------------------------------------------------------------

    def check_process(self) -> None:
        """Raise ForkedError in a process that the loop was not made in."""
        if os.getpid() != self._process_id:
            raise ForkedError("this client was made before the process forked")

    @property
    def is_own_thread(self) -> bool:
        """True on the loop's thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def post(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the thread, in the order of the calls.

        ClosedError after close, ForkedError in another process.
        """
        self.check_process()
        with self._lock:
            if self._closing:
                raise ClosedError("the client is closed")
            self._posted.append(callback)
        if not self._is_awake:
            self._wake()

    def submit(self, begin: Callable[[], Deferred[T]]) -> concurrent.futures.Future[T]:
        """Run ``begin`` on the thread; the future gets the result of its Deferred."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def settle(source: Deferred[T]) -> None:
            if future.done():
                return  # it has failed with another callback
            self._unsettled.discard(future)
            try:
                value = source.result()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)

        def start() -> None:
            self._unsettled.add(future)
            try:
                begin().on_done(settle)
            except BaseException as error:
                if future.done():
                    raise
                self._unsettled.discard(future)
                future.set_exception(error)

        self.post(start)
        return future

    def close(self) -> None:
        """Stop the thread after what has been posted so far; waits for it. Harmless twice."""
        if os.getpid() != self._process_id:
            return
        self.release()
        if not self.is_own_thread:
            self._thread.join()

    def belongs_to(self, owner: object, close: Callable[[], Deferred[None]]) -> None:
        """When ``owner`` is garbage-collected without having been closed: warn, call ``close``, and
        stop.

        This does not block. Neither ``close`` nor anything on the loop may reference ``owner``.
        """
        weakref.finalize(owner, _dropped, self, type(owner).__name__, close).atexit = False

    def release(self) -> None:
        """Stop the thread after what has been posted so far; does not wait for it."""
        with self._lock:
            self._closing = True
        self._wake()

    # --- of the loop -----------------------------------------------------------------------------

    def resolve(self, address: Address, transport: SocketTransport) -> None:
        """Look a name up on a thread of its own."""
        self._start_helper("millstream-resolver", lambda: self._resolve(address, transport))

    def run_blocking(self, work: Callable[[], T]) -> Deferred[T]:
        """Run ``work`` on a thread of its own."""
        cell: Deferred[T] = Deferred()

        def run() -> None:
            settle: Callable[[], None]
            try:
                value = work()
            except BaseException as error:
                settle = partial(cell.fail, error)
            else:
                settle = partial(cell.complete, value)
            with contextlib.suppress(ClosedError):
                self.post(settle)

        self._start_helper("millstream-helper", run)
        return cell

    def _start_helper(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            work()
            self._helpers.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._helpers.add(thread)
        thread.start()

    # --- the thread ------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._is_awake = True
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"\0")

    def _resolve(self, address: Address, transport: SocketTransport) -> None:
        settle: Callable[[], None]
        try:
            settle = partial(transport.try_addresses, look_up(address))
        except (OSError, UnicodeError) as raised:
            settle = partial(transport.fail, no_address(raised))
        with contextlib.suppress(ClosedError):
            self.post(settle)

    def _run(self) -> None:
        _local.is_loop = True
        try:
            while not self._closing or self._posted or self._soon:
                self.run_once()
        finally:
            self._tear_down()

    def before_timers(self) -> None:
        """Run what was posted."""
        # Wake-ups from here on are too late for this pass of the loop and need another byte.
        self._is_awake = False
        while self._posted:
            self.guard(self._posted.popleft())

    def guard(self, callback: Callable[[], None]) -> None:
        """Run a callback. Its error does not end the thread; submitted work that has no result yet
        fails with it, because what that waits for may never come.
        """
        try:
            callback()
        except BaseException as error:
            log.exception("an error in a callback of the client")
            waiting, self._unsettled = self._unsettled, set()
            for future in waiting:
                future.set_exception(error)

    @property
    def has_more(self) -> bool:
        """True if something was posted, or the loop ends."""
        return bool(self._posted) or self._closing

    def on_events(self, _mask: int) -> None:
        """Take the bytes that woke the thread."""
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass

    def _tear_down(self) -> None:
        for future in self._unsettled:
            future.set_exception(ClosedError("the client was closed"))
        self._unsettled.clear()
        self.close_transports()
        self._wake_in.close()
        self._wake_out.close()
        deadline = time.monotonic() + _HELPERS_S
        for thread in list(self._helpers):
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                log.warning("%s is left: what it has called does not return", thread.name)


def _dropped(loop: ThreadLoop, name: str, close: Callable[[], Deferred[None]]) -> None:
    """Close for an owner that was collected; runs on the thread of the garbage collector."""
    with contextlib.suppress(ClosedError, ForkedError):
        loop.submit(close).add_done_callback(lambda _: loop.release())
        warnings.warn(f"a {name} was not closed", ResourceWarning, stacklevel=2)
