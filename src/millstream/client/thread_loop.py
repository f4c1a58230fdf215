"""The loop behind the blocking API: one background thread with a selector.

Other threads submit work with :meth:`ThreadLoop.submit` and :meth:`ThreadLoop.post`; a byte
through a pair of sockets wakes the thread. Host names are resolved on short-lived threads, so that
a slow name server delays no heartbeat. After :meth:`close` no thread and no socket is left, and
submitted work without a result fails with ClosedError.

The thread references its loop, so the loop must not reference its owner: see
:meth:`ThreadLoop.belongs_to`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import heapq
import logging
import os
import random
import selectors
import socket
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from millstream.client.core.loop import TransportEvents
from millstream.client.errors import ClosedError, ForkedError, WaitInCallbackError
from millstream.client.settings import Address
from millstream.client.socket_transport import SocketTransport
from millstream.model.deferred import Deferred

T = TypeVar("T")

log = logging.getLogger("millstream.client")

_LONG_WAIT_S: Final = 3600.0
_FIRST_COMPACTED: Final = 1000
"""Cancelled timers are removed once there are this many, and more of them than active ones."""


class Watched(Protocol):
    """An object with a file descriptor that the selector watches."""

    def on_events(self, mask: int) -> None:
        """Act on ``selectors.EVENT_READ`` and ``EVENT_WRITE``."""


class Timer:
    """One callback at one time."""

    __slots__ = ("callback", "loop", "order", "when_ms")

    def __init__(
        self, when_ms: float, order: int, callback: Callable[[], None], loop: ThreadLoop
    ) -> None:
        self.when_ms = when_ms
        self.order = order
        self.callback: Callable[[], None] | None = callback
        self.loop = loop

    def cancel(self) -> None:
        """Never run."""
        if self.callback is not None:
            self.callback = None
            self.loop.cancelled += 1

    def __lt__(self, other: Timer) -> bool:
        return (self.when_ms, self.order) < (other.when_ms, other.order)


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


os.register_at_fork(after_in_child=_after_fork)


class ThreadLoop:
    """Implements ``core.loop.ClientLoop``. Its methods other than ``submit``, ``post``, ``close``
    and ``check_process`` are for the thread itself.
    """

    def __init__(
        self, name: str = "millstream-client", *, send_bytes: int = -1, receive_bytes: int = -1
    ) -> None:
        self.cancelled = 0
        self.after_fork: Callable[[], None] = lambda: None
        """Called in a process that was forked from the one that made the loop."""
        self._send_bytes = send_bytes
        self._receive_bytes = receive_bytes
        self._process_id = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._timers: list[Timer] = []
        self._order = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_awake = False
        self._closing = False
        # A signal handler may call this while its thread is inside of it.
        self._lock = threading.RLock()
        self._unsettled: set[concurrent.futures.Future[Any]] = set()
        self._resolvers: set[threading.Thread] = set()
        self._transports: set[SocketTransport] = set()
        self._wake_out, self._wake_in = socket.socketpair()
        for each in (self._wake_out, self._wake_in):
            each.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, None)
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

    # --- ClientLoop ------------------------------------------------------------------------------

    def now_ms(self) -> float:
        """Return the monotonic clock in milliseconds."""
        return time.monotonic() * 1000

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        return random.random()

    def call_at(self, when_ms: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` at a time."""
        self._order += 1
        timer = Timer(when_ms, self._order, callback, self)
        heapq.heappush(self._timers, timer)
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after the present callback."""
        self._soon.append(callback)

    def connect(self, address: Address, events: TransportEvents) -> SocketTransport:
        """Begin to connect."""
        transport = SocketTransport(self, events, self._send_bytes, self._receive_bytes)
        self._transports.add(transport)
        infos = literal(address)
        if infos is not None:
            self.call_soon(lambda: transport.try_addresses(infos))
            return transport
        thread = threading.Thread(
            target=self._resolve, args=(address, transport), name="millstream-resolver", daemon=True
        )
        self._resolvers.add(thread)
        thread.start()
        return transport

    # --- for transports --------------------------------------------------------------------------

    def watch(self, handle: socket.socket, mask: int, watched: Watched) -> None:
        """Watch a socket for ``watched``, or change its mask."""
        if handle.fileno() in self._selector.get_map():
            self._selector.modify(handle, mask, watched)
        else:
            self._selector.register(handle, mask, watched)

    def unwatch(self, handle: socket.socket) -> None:
        """Stop watching a socket."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(handle)

    def forget(self, transport: SocketTransport) -> None:
        """Drop a transport that was closed."""
        self._transports.discard(transport)

    # --- the thread ------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._is_awake = True
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_out.send(b"\0")

    def _resolve(self, address: Address, transport: SocketTransport) -> None:
        try:
            infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            found = [(info[0], info[4]) for info in infos]
        except (OSError, UnicodeError) as raised:
            failure = no_address(raised)
            with contextlib.suppress(ClosedError):
                self.post(lambda: transport.fail(failure))
        else:
            with contextlib.suppress(ClosedError):
                self.post(lambda: transport.try_addresses(found))
        self._resolvers.discard(threading.current_thread())

    def _run(self) -> None:
        _local.is_loop = True
        try:
            while not self._closing or self._posted or self._soon:
                self._run_once()
        finally:
            self._tear_down()

    def _run_once(self) -> None:
        for key, mask in self._selector.select(self._wait_s()):
            if key.data is None:
                self._drain_wake()
            else:
                self._guard(lambda key=key, mask=mask: key.data.on_events(mask))  # type: ignore[misc]
        # Wake-ups from here on are too late for this pass of the loop and need another byte.
        self._is_awake = False
        while self._posted:
            self._guard(self._posted.popleft())
        self._run_timers()
        for _ in range(len(self._soon)):
            self._guard(self._soon.popleft())

    def _wait_s(self) -> float:
        if self._soon or self._posted or self._closing:
            return 0
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self.cancelled -= 1
        if not self._timers:
            return _LONG_WAIT_S
        return min(max(self._timers[0].when_ms - self.now_ms(), 0) / 1000, _LONG_WAIT_S)

    def _run_timers(self) -> None:
        now = self.now_ms()
        while self._timers and self._timers[0].when_ms <= now:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is None:
                self.cancelled -= 1
            else:
                self._guard(callback)
        if self.cancelled > max(_FIRST_COMPACTED, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self.cancelled = 0

    def _guard(self, callback: Callable[[], None]) -> None:
        """Run a callback; an error in one must not end the client's only thread."""
        try:
            callback()
        except BaseException:
            log.exception("an error in a callback of the client")

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wake_in.recv(4096):
                pass

    def _tear_down(self) -> None:
        for future in self._unsettled:
            future.set_exception(ClosedError("the client was closed"))
        self._unsettled.clear()
        for transport in list(self._transports):
            transport.close()
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        for thread in list(self._resolvers):
            thread.join()


def literal(address: Address) -> list[tuple[int, tuple[str, int]]] | None:
    """Return the socket address if the host is an IP address; None for a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, address.host)
        except OSError:
            continue
        return [(family, (address.host, address.port))]
    return None


def no_address(error: OSError | UnicodeError) -> OSError:
    """Return why a name has no address; for a label that is empty or too long Python raises a
    UnicodeError.
    """
    if isinstance(error, OSError):
        return error
    return OSError(errno.EINVAL, f"this is not the name of a host ({error.__cause__ or error})")


def _dropped(loop: ThreadLoop, name: str, close: Callable[[], Deferred[None]]) -> None:
    """Close for an owner that was collected; runs on the thread of the garbage collector."""
    with contextlib.suppress(ClosedError, ForkedError):
        loop.submit(close).add_done_callback(lambda _: loop.release())
        warnings.warn(f"a {name} was not closed", ResourceWarning, stacklevel=2)
