"""A client's loop over a selector: sockets, timers, callbacks. Who turns it is what differs: a
background thread (``thread_loop``), or whoever waits for an answer (``blocking_loop``).
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import logging
import os
import random
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from millstream.client.core.loop import TransportEvents
from millstream.client.core.security import PLAINTEXT, Security
from millstream.client.settings import Address
from millstream.client.socket_transport import SocketTransport
from millstream.platform import make_selector

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
        self, when_ms: float, order: int, callback: Callable[[], None], loop: SelectorLoop
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


class SelectorLoop:
    """What both loops have in common of ``core.loop.ClientLoop``."""

    def __init__(
        self,
        *,
        send_bytes: int = -1,
        receive_bytes: int = -1,
        security: Security = PLAINTEXT,
    ) -> None:
        self.security = security
        self.cancelled = 0
        self._send_bytes = send_bytes
        self._receive_bytes = receive_bytes
        self._selector = make_selector()
        self._timers: list[Timer] = []
        self._order = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._transports: set[SocketTransport] = set()

    # --- what differs ----------------------------------------------------------------------------

    def resolve(self, address: Address, transport: SocketTransport) -> None:
        """Look a name up and hand its addresses, or the error, to the transport."""
        raise NotImplementedError

    def before_timers(self) -> None:
        """Run what others gave the loop, once in each pass."""

    @property
    def has_more(self) -> bool:
        """True if the loop must not wait."""
        return False

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

    def random_bytes(self, count: int) -> bytes:
        """Return bytes from the system's randomness."""
        return os.urandom(count)

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
        else:
            self.resolve(address, transport)
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

    # --- a pass ----------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Wait for sockets and timers, and run what is due."""
        for key, mask in self._selector.select(self._wait_s()):
            self.guard(partial(key.data.on_events, mask))
        self.before_timers()
        self._run_timers()
        for _ in range(len(self._soon)):
            self.guard(self._soon.popleft())

    def run_due(self) -> None:
        """Run the timers that are due, and what they bring, without a look at sockets."""
        self._run_timers()
        while self._soon:
            self.guard(self._soon.popleft())

    def close_transports(self) -> None:
        """Close every connection, and the selector."""
        for transport in list(self._transports):
            transport.close()
        self._selector.close()

    def _wait_s(self) -> float:
        if self._soon or self.has_more:
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
                self.guard(callback)
        if self.cancelled > max(_FIRST_COMPACTED, len(self._timers) // 2):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self.cancelled = 0

    def guard(self, callback: Callable[[], None]) -> None:
        """Run a callback; an error in one must not end the client's only thread."""
        try:
            callback()
        except BaseException:
            log.exception("an error in a callback of the client")


def look_up(address: Address) -> list[tuple[int, Any]]:
    """Return the socket addresses of a host; OSError or UnicodeError for a name without any."""
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return [(info[0], info[4]) for info in infos]


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
