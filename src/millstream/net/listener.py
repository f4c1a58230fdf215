"""Listening sockets: accept, limit and sweep connections.

The number of connections is limited (``connection_quotas``). A frame that has begun must be
complete within a deadline. The broker closes a connection that neither sends nor waits for an
answer for ``idle_ms``, and one that leaves an answer unread for as long.
"""

from __future__ import annotations

import errno
import itertools
import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from millstream.net.connection import Connection, ConnectionPolicy
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.peer import OpenSession, Peer, Session
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.transport import PlainTransport, Transport
from millstream.protocol.framing import FrameReader

if TYPE_CHECKING:  # a broker that serves everybody at once loads nothing of it
    from millstream.net.peer_authentication import PeerAuthentication, Protection

log = logging.getLogger(__name__)

_NO_SUCH_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_ACCEPTS_AT_ONCE = 64
_SWEEP_SECONDS = 1.0
_SWEEP_MS = 1000
_MAX_HELD_BACK = 1_000
_RESTING_SWEEPS = 10
"""So long nothing has come that a connection's buffer is better given back."""
_LEAST_BYTES_PER_MS = 64  # a large frame on a slow line may take longer than the deadline


class _Mute:
    """``Peer.mute`` of a connection, which a closed one does not stay reachable through: what has a
    large buffer must not wait for the garbage collector, which runs seldom.
    """

    __slots__ = ("connection",)

    def __init__(self) -> None:
        self.connection: Connection | None = None

    def __call__(self, milliseconds: float) -> None:
        if self.connection is not None:
            self.connection.mute(milliseconds)


class _Tracked:
    """A connection and how many sweeps it, or the frame it is in, has stood still."""

    __slots__ = (
        "connection",
        "frame",
        "frame_sweeps",
        "host",
        "mute",
        "number",
        "session",
        "still",
    )

    def __init__(
        self, connection: Connection, number: int, host: str, session: Session, mute: _Mute
    ) -> None:
        self.connection = connection
        self.mute = mute
        self.number = number
        self.host = host
        self.session = session
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
    """Accepts on one address and owns the connections that come of it.

    ``for_brokers``: clients have another one (see ``connection_quotas``). ``protection`` is None
    where everybody is served at once.
    """

    _ids = itertools.count(1)

    def __init__(
        self,
        name: str,
        *,
        loop: AbstractEventLoop,
        quotas: ConnectionQuotas,
        budget: ReceiveBudget,
        policy: ConnectionPolicy,
        for_brokers: bool = False,
        protection: Protection | None = None,
        new_connection: Callable[..., Connection] = Connection,
    ) -> None:
        self.name = name
        self._new_connection = new_connection
        self._authentication: PeerAuthentication | None = None
        if protection is not None:
            from millstream.net.peer_authentication import PeerAuthentication

            self._authentication = PeerAuthentication(
                protection, loop=loop, quotas=quotas, begin=self._begin
            )
        self._for_brokers = for_brokers
        self._loop = loop
        self._quotas = quotas
        self._open_session: OpenSession | None = None
        self._budget = budget
        self._policy = policy
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._connections: dict[Connection, _Tracked] = {}
        self._held_back: set[socket.socket] = set()
        """Peers whose addresses connect too often, until they are closed."""
        self._sweeper: TimerHandle | None = None
        self.accepted = 0
        """Connections that were accepted since the start."""

    def bind(self, host: str, port: int) -> int:
        """Listen on every address of ``host`` that this machine has, and return the port (the
        system picks one for 0). Names and "every address" have IPv6 in containers that have not.

        OSError when there is no such address, or it is in use.
        """
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        absent: OSError | None = None
        for family, kind, protocol, _, address in addresses:
            try:
                # A second address family gets the port that the system picked for the first.
                port = self._listen(family, kind, protocol, (address[0], port, *address[2:]))
            except OSError as error:
                if error.errno not in _NO_SUCH_ADDRESS:
                    raise
                absent = absent or error
        if absent is not None and not self._sockets:
            raise absent
        return port

    def _listen(
        self, family: int, kind: int, protocol: int, address: tuple[str | int | bytes, ...]
    ) -> int:
        with ExitStack() as unless_it_listens:
            sock = unless_it_listens.enter_context(socket.socket(family, kind, protocol))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(self._quotas.limits.backlog)
            sock.setblocking(False)
            unless_it_listens.pop_all()
        self._sockets.append(sock)
        return int(sock.getsockname()[1])

    def start(self, open_session: OpenSession) -> None:
        """Begin to accept; ``open_session(peer)`` returns the session that serves its frames."""
        self._open_session = open_session
        self._resume_accepting()
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)

    def stop_accepting(self) -> None:
        """Close the listening sockets; connections go on."""
        self._pause_accepting()
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def close(self) -> None:
        """Close everything."""
        self.stop_accepting()
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._authentication is not None:
            self._authentication.close()
        for sock in tuple(self._held_back):
            self._let_go(sock)
        for connection in list(self._connections):
            connection.close()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        shaking = 0 if self._authentication is None else self._authentication.handshakes
        return len(self._connections) + shaking

    def waiting(self) -> Iterator[str]:
        """Yield the connections that wait: for an answer, or for their peer to read one."""
        for tracked in tuple(self._connections.values()):
            connection = tracked.connection
            if connection.waits_for_reader:
                yield f"connection {tracked.number} of {tracked.host}: an answer is not read"
            elif connection.busy:
                yield f"connection {tracked.number} of {tracked.host}: a request has no answer yet"

    def _resume_accepting(self) -> None:
        if not self._accepting:
            self._accepting = True
            for sock in self._sockets:
                self._loop.add_reader(sock.fileno(), self._accept, sock)

    def _pause_accepting(self) -> None:
        """Leave peers in the backlog until the next sweep: a listening socket stays readable, so
        the loop would run for nothing.
        """
        if self._accepting:
            self._accepting = False
            for sock in self._sockets:
                self._loop.remove_reader(sock.fileno())

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS_AT_ONCE):
            if not (self._for_brokers or self._quotas.may_accept(self._loop.time())):
                self._pause_accepting()
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # out of file descriptors, mostly
                log.warning("cannot accept on %s: %s", self.name, error)
                self._pause_accepting()
                return
            host = address[0]
            if sock.fileno() > self._quotas.limits.last_descriptor and not self._for_brokers:
                log.warning("refused a connection from %s: too few file descriptors", host)
                sock.close()
                self._pause_accepting()
                return
            if self._quotas.rates is not None and self._is_held_back(sock, host):
                continue
            if not self._quotas.admit(host, is_client=not self._for_brokers):
                log.warning("refused a connection from %s: too many connections", host)
                sock.close()
                continue
            self._open(sock, host, address[1])

    def _is_held_back(self, sock: socket.socket, host: str) -> bool:
        """Hold back a peer whose address connects too often: it is closed, after a while in which
        it does not try again (Kafka: ``ConnectionThrottledException``).
        """
        rates = self._quotas.rates
        assert rates is not None
        if self._for_brokers:
            return False
        throttle_ms = rates.connected(host, self._loop.time() * 1_000)
        if not throttle_ms:
            return False
        if len(self._held_back) >= _MAX_HELD_BACK:
            sock.close()
            return True
        self._held_back.add(sock)
        self._loop.call_later(throttle_ms / 1_000, self._let_go, sock)
        return True

    def _let_go(self, sock: socket.socket) -> None:
        self._held_back.discard(sock)
        sock.close()

    def _open(self, sock: socket.socket, host: str, port: int) -> None:
        limits = self._quotas.limits
        assert self._open_session is not None
        try:
            _prepare(sock, limits)
        except OSError as error:  # the peer has gone already
            log.info("lost a connection from %s: %s", host, error)
            sock.close()
            self._quotas.release(host)
            return
        number = next(self._ids)
        self.accepted += 1
        authentication = self._authentication
        if authentication is None:
            self._begin(PlainTransport(sock, self._loop), Peer(number, self.name, host, port))
        else:
            peer = Peer(number, self.name, host, port, authentication.protocol)
            authentication.admit(sock, peer)

    def _begin(self, transport: Transport, peer: Peer) -> Connection:
        """Serve a peer from now on."""
        assert self._open_session is not None

        mute = _Mute()
        session = self._open_session(replace(peer, mute=mute))
        frames = FrameReader(self._quotas.limits.max_frame_bytes)
        session.limit(frames)
        connection = self._new_connection(
            transport,
            loop=self._loop,
            serve=session.serve,
            frames=frames,
            budget=self._budget,
            policy=self._policy,
            on_closed=self._forget,
        )
        mute.connection = connection
        tracked = _Tracked(connection, peer.connection_id, peer.host, session, mute)
        self._connections[connection] = tracked
        connection.start()
        return connection

    def _forget(self, connection: Connection) -> None:
        tracked = self._connections.pop(connection)
        tracked.mute.connection = None
        self._quotas.release(tracked.host)
        if self._authentication is not None:
            self._authentication.authenticated(tracked.number)
        tracked.session.closed()

    def _sweep(self) -> None:
        """Close the peers that stood still too long, and those that are too many."""
        self._sweeper = self._loop.call_later(_SWEEP_SECONDS, self._sweep)
        for tracked in list(self._connections.values()):
            self._look_at(tracked)
        self._close_excess()
        self._resume_accepting()

    def _close_excess(self) -> None:
        """Close the connections that have been idle longest, when there are more than the limit:
        after it was lowered, or when brokers connected (Kafka: ``closeExcessConnections``).
        """
        excess = self._quotas.excess
        if not excess or self._for_brokers:
            return
        by_silence = sorted(self._connections.values(), key=lambda tracked: -tracked.still)
        for tracked in by_silence[:excess]:
            log.info("closing a connection from %s: too many connections", tracked.host)
            tracked.connection.close()

    def _look_at(self, tracked: _Tracked) -> None:
        limits = self._quotas.limits
        connection = tracked.connection
        frame_bytes = connection.partial_frame_bytes
        frame_ms = tracked.frame_age_sweeps() * _SWEEP_MS
        if frame_ms > limits.frame_deadline_ms + frame_bytes / _LEAST_BYTES_PER_MS:
            log.info("closing %s: a frame was begun and not finished in time", tracked.host)
            connection.close()
            return
        if connection.touched:
            connection.touched = False
            tracked.still = 0
            return
        tracked.still += 1
        owed = connection.busy and not connection.waits_for_reader
        if 0 <= limits.idle_ms <= tracked.still * _SWEEP_MS and not owed:
            connection.close()
        elif tracked.still == _RESTING_SWEEPS:
            connection.rest()


def _prepare(sock: socket.socket, limits: ConnectionLimits) -> None:
    """Set the options of a socket that was accepted; OSError when it is gone."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if limits.send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
    if limits.receive_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
