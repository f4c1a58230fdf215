"""Listening sockets: accept, limit and sweep connections.

Limits (SECURITY: slow clients, memory): so many connections in all and from one address; a frame
that has begun must be whole within a deadline; a peer that neither sends nor is owed an answer for
``idle_ms`` is closed, and so is one that leaves an answer unread as long.
"""

from __future__ import annotations

import itertools
import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from millstream.net.connection import Connection, ConnectionPolicy, Served
from millstream.net.receive_budget import ReceiveBudget
from millstream.protocol.framing import FrameReader

log = logging.getLogger(__name__)

_BACKLOG = 511
_ACCEPTS_AT_ONCE = 64
_SWEEP_SECONDS = 1.0
_LEAST_BYTES_PER_MS = 64  # a large frame on a slow line may take longer than the deadline


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much a peer may ask of the broker before it is served at all."""

    max_frame_bytes: int = 100 * 1024 * 1024
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    max_creation_rate: int = 2**31 - 1
    idle_ms: int = 600_000
    frame_deadline_ms: int = 30_000
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1

    def of_address(self, host: str) -> int:
        """Return how many connections one address may hold open."""
        overrides = dict(self.max_connections_per_ip_overrides)
        return overrides.get(host, self.max_connections_per_ip)


@dataclass(frozen=True, slots=True)
class Peer:
    """One accepted connection as the dispatcher knows it."""

    connection_id: int
    listener: str
    host: str
    port: int


OpenSession = Callable[[Peer], Callable[[memoryview], Served]]


class _Tracked:
    """A connection and how many sweeps it, or the frame it is in, has stood still."""

    __slots__ = ("connection", "frame", "frame_sweeps", "host", "still")

    def __init__(self, connection: Connection, host: str) -> None:
        self.connection = connection
        self.host = host
        self.still = 0
        self.frame = 0
        self.frame_sweeps = 0

    def frame_age_sweeps(self) -> int:
        """How many sweeps have seen the same unfinished frame."""
        connection = self.connection
        if not connection.partial_frame_bytes or connection.frames_served != self.frame:
            self.frame = connection.frames_served
            self.frame_sweeps = 0
        else:
            self.frame_sweeps += 1
        return self.frame_sweeps


class Listener:
    """Accepts on one address and owns the connections that come of it."""

    _ids = itertools.count(1)

    def __init__(
        self,
        name: str,
        *,
        loop: AbstractEventLoop,
        limits: ConnectionLimits,
        budget: ReceiveBudget,
        policy: ConnectionPolicy,
    ) -> None:
        self.name = name
        self._loop = loop
        self.limits = limits
        """What holds from now on; connections that are open keep what they have."""
        self._open_session: OpenSession | None = None
        self._budget = budget
        self._policy = policy
        self._waiting: list[socket.socket] = []
        self._accepted_this_second = 0
        self._sockets: list[socket.socket] = []
        self._connections: dict[Connection, _Tracked] = {}
        self._by_host: Counter[str] = Counter()
        self._sweeper: TimerHandle | None = None

    def bind(self, host: str, port: int) -> int:
        """Listen on every address of ``host`` and return the port (the system picks one for 0).

        OSError when the address is not to be had.
        """
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, protocol, _, address in addresses:
            sock = socket.socket(family, kind, protocol)
            self._sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # A second address family gets the port that the system picked for the first.
            sock.bind((address[0], port, *address[2:]))
            port = sock.getsockname()[1]
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        return port

    def start(self, open_session: OpenSession) -> None:
        """Begin to accept; ``open_session(peer)`` answers what serves that peer's frames."""
        self._open_session = open_session
        for sock in self._sockets:
            self._loop.add_reader(sock.fileno(), self._accept, sock)
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections go on."""
        for sock in self._sockets:
            self._loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()
        self._waiting.clear()

    def close(self) -> None:
        """Close everything."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            if self._accepted_this_second >= self.limits.max_creation_rate:
                # The rest waits in the backlog; the next sweep begins a new second.
                self._loop.remove_reader(listening.fileno())
                self._waiting.append(listening)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Out of file descriptors, mostly: the peers waiting in the backlog are tried again
                # when a connection closes or the next one knocks.
                log.warning("cannot accept on %s: %s", self.name, error)
                return
            self._accepted_this_second += 1
            host = address[0]
            if self._full(host):
                log.warning("refused a connection from %s: too many connections", host)
                sock.close()
                continue
            self._open(sock, host, address[1])

    def _full(self, host: str) -> bool:
        limits = self.limits
        allowed = limits.of_address(host)
        return len(self._connections) >= limits.max_connections or self._by_host[host] >= allowed

    def _open(self, sock: socket.socket, host: str, port: int) -> None:
        limits = self.limits
        assert self._open_session is not None
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        peer = Peer(next(self._ids), self.name, host, port)
        connection = Connection(
            sock,
            loop=self._loop,
            serve=self._open_session(peer),
            frames=FrameReader(limits.max_frame_bytes),
            budget=self._budget,
            policy=self._policy,
            on_closed=self._forget,
        )
        self._connections[connection] = _Tracked(connection, host)
        self._by_host[host] += 1
        connection.start()

    def _forget(self, connection: Connection) -> None:
        tracked = self._connections.pop(connection, None)
        if tracked is not None:
            self._by_host[tracked.host] -= 1
            if not self._by_host[tracked.host]:
                del self._by_host[tracked.host]

    def _sweep(self) -> None:
        """Close the peers that stood still too long."""
        sweep_ms = _SWEEP_SECONDS * 1000
        self._accepted_this_second = 0
        for sock in self._waiting:
            self._loop.add_reader(sock.fileno(), self._accept, sock)
        self._waiting.clear()
        for tracked in list(self._connections.values()):
            connection = tracked.connection
            frame_bytes = connection.partial_frame_bytes
            frame_ms = tracked.frame_age_sweeps() * sweep_ms
            if frame_ms > self.limits.frame_deadline_ms + frame_bytes / _LEAST_BYTES_PER_MS:
                log.info("closing %s: a frame was begun and not finished in time", tracked.host)
                connection.close()
                continue
            if connection.touched:
                connection.touched = False
                tracked.still = 0
                continue
            tracked.still += 1
            owed = connection.busy and not connection.waits_for_reader
            if tracked.still * sweep_ms >= self.limits.idle_ms and not owed:
                connection.close()
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
