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
from dataclasses import dataclass, replace
from functools import partial
from ssl import SSLContext, SSLObject
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.principal import ANONYMOUS, KafkaPrincipal
from millstream.net.connection import Connection, ConnectionPolicy, Served
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.half_open import HalfOpen
from millstream.net.handshake_turns import HandshakeTurns
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.tls_handshake import TlsHandshake
from millstream.net.transport import PlainTransport, Scratch, TlsTransport, Transport
from millstream.protocol.framing import FrameReader

log = logging.getLogger(__name__)

_NO_SUCH_ADDRESS = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_ACCEPTS_AT_ONCE = 64
_SWEEP_SECONDS = 1.0
_SWEEP_MS = 1000
_MAX_HELD_BACK = 1_000
_RESTING_SWEEPS = 10
"""So long nothing has come that a connection's buffer is better given back."""
_LEAST_BYTES_PER_MS = 64  # a large frame on a slow line may take longer than the deadline


def _nothing() -> None:
    """Do nothing: nobody waits for the peer."""


def _unheard(peer: Peer, reason: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One accepted connection as the dispatcher knows it."""

    connection_id: int
    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"
    principal: KafkaPrincipal = ANONYMOUS
    """Who the certificate of the peer speaks for; anonymous without one."""
    mute: Callable[[float], None] | None = None
    """Has nothing more of the peer handled for so many milliseconds."""
    on_authenticated: Callable[[], None] = _nothing
    """To be called once a peer that has to authenticate, by SASL, has done so: until then it counts
    as half open, and has a deadline."""


class Session(Protocol):
    """Who serves the frames of one connection."""

    @property
    def serve(self) -> Callable[[memoryview], Served]:
        """Answers one frame, see ``Connection``."""

    def limit(self, frames: FrameReader) -> None:
        """Called before anything is received: lower the limits of the frames of a client that has
        to authenticate first.
        """

    def closed(self) -> None:
        """The peer has gone: nothing needs to wait on its behalf any more."""


OpenSession = Callable[[Peer], Session]


class ServerTls(Protocol):
    """The broker's side of TLS for one listener."""

    @property
    def context(self) -> SSLContext:
        """The context in force: certificates may have been replaced since the last connection."""

    def principal(self, tls: SSLObject) -> KafkaPrincipal:
        """Return who the peer is. AuthenticationError, worded for the log, refuses it."""


class AuthenticationError(MillstreamError):
    """The certificate of a peer speaks for nobody."""


@dataclass(slots=True)
class Protection:
    """What a listener asks of a peer before it serves it. ``half_open`` and ``turns`` are shared by
    all listeners, ``scratch`` by all transports of a loop.
    """

    protocol: str
    half_open: HalfOpen
    scratch: Scratch
    turns: HandshakeTurns
    tls: ServerTls | None = None
    on_outcome: Callable[[Peer, str], None] = _unheard
    """Called with a peer whose certificate was accepted, and an empty reason, or with why a peer
    did not come to the end of its authentication. What SASL refuses is the session's to tell."""

    @property
    def asks_for_sasl(self) -> bool:
        """True when a session has to say that its peer is authenticated."""
        return self.protocol.startswith("SASL_")


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


@dataclass(slots=True)
class _HalfOpen:
    """A peer that is not authenticated yet: in the handshake of TLS, or in that of SASL."""

    peer: Peer
    deadline: TimerHandle
    handshake: TlsHandshake | None = None
    connection: Connection | None = None


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
        self._protection = protection
        self._for_brokers = for_brokers
        self._loop = loop
        self._quotas = quotas
        self._open_session: OpenSession | None = None
        self._budget = budget
        self._policy = policy
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._connections: dict[Connection, _Tracked] = {}
        self._half_open: dict[int, _HalfOpen] = {}
        self._held_back: set[socket.socket] = set()
        """Peers whose addresses connect too often, until they are closed."""
        """The peers that are not authenticated yet, by number."""
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
        for number in list(self._half_open):
            self._drop(number)
        for sock in tuple(self._held_back):
            self._let_go(sock)
        for connection in list(self._connections):
            connection.close()

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        shaking = sum(each.handshake is not None for each in self._half_open.values())
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
        if self._protection is None:
            self._begin(PlainTransport(sock, self._loop), Peer(number, self.name, host, port))
        else:
            self._admit(sock, Peer(number, self.name, host, port, self._protection.protocol))

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
        if self._half_open:
            self._authenticated(tracked.number)
        tracked.session.closed()

    def _admit(self, sock: socket.socket, peer: Peer) -> None:
        """Let a peer authenticate: TLS first, then SASL, each where the listener asks for it."""
        protection = self._protection
        assert protection is not None
        number, seconds = peer.connection_id, self._quotas.limits.authentication_ms / 1000
        deadline = self._loop.call_later(seconds, self._give_up, number, "took too long")
        half_open = self._half_open[number] = _HalfOpen(peer, deadline)
        protection.half_open.add(
            number, peer.host, partial(self._give_up, number, "gave way to newer ones")
        )
        if protection.tls is None:
            self._begin_sasl(PlainTransport(sock, self._loop), half_open, peer)
            return
        half_open.handshake = TlsHandshake(
            sock,
            loop=self._loop,
            context=protection.tls.context,
            scratch=protection.scratch,
            on_done=partial(self._shaken, half_open),
            on_failed=partial(self._handshake_failed, half_open),
            turns=protection.turns,
        )

    def _shaken(self, half_open: _HalfOpen, transport: TlsTransport) -> None:
        protection = self._protection
        assert protection is not None
        assert protection.tls is not None
        half_open.handshake = None
        peer = half_open.peer
        try:
            principal = protection.tls.principal(transport.tls)
        except AuthenticationError as error:
            log.info("closing the connection of %s:%d: %s", peer.host, peer.port, error)
            self._turn_away(half_open, transport, str(error))
            return
        except Exception:  # a fault of this side, after which nobody else knows of the socket
            log.exception("closing the connection of %s:%d: who it is", peer.host, peer.port)
            self._turn_away(half_open, transport, "a fault of the broker")
            return
        peer = replace(peer, principal=principal)
        if protection.asks_for_sasl:
            self._begin_sasl(transport, half_open, peer)
        else:
            self._authenticated(peer.connection_id)
            protection.on_outcome(peer, "")
            self._begin(transport, peer)

    def _turn_away(self, half_open: _HalfOpen, transport: TlsTransport, reason: str) -> None:
        """Close a peer whose certificate names nobody."""
        peer = half_open.peer
        transport.close()
        self._quotas.release(peer.host)
        self._authenticated(peer.connection_id)
        assert self._protection is not None
        self._protection.on_outcome(peer, reason)

    def _begin_sasl(self, transport: Transport, half_open: _HalfOpen, peer: Peer) -> None:
        on_authenticated = partial(self._authenticated, peer.connection_id)
        peer = replace(peer, on_authenticated=on_authenticated)
        half_open.connection = self._begin(transport, peer)

    def _authenticated(self, number: int) -> None:
        """Count a peer out of those that are half open."""
        half_open = self._half_open.pop(number, None)
        if half_open is not None:
            assert self._protection is not None
            half_open.deadline.cancel()
            half_open.handshake = half_open.connection = None  # they know it, and are freed at once
            self._protection.half_open.remove(number)

    def _handshake_failed(self, half_open: _HalfOpen, reason: str) -> None:
        peer = half_open.peer
        if reason:
            log.info("closed the connection of %s:%d: %s", peer.host, peer.port, reason)
            assert self._protection is not None
            self._protection.on_outcome(peer, reason)
        self._quotas.release(peer.host)
        self._authenticated(peer.connection_id)

    def _give_up(self, number: int, reason: str) -> None:
        peer = self._half_open[number].peer
        log.info(
            "closing the connection of %s:%d: its authentication %s", peer.host, peer.port, reason
        )
        assert self._protection is not None
        self._protection.on_outcome(peer, reason)
        self._drop(number)

    def _drop(self, number: int) -> None:
        """Close a peer that is half open."""
        half_open = self._half_open[number]
        if half_open.connection is not None:
            half_open.connection.close()
        elif half_open.handshake is not None:
            half_open.handshake.close()
            self._quotas.release(half_open.peer.host)
        self._authenticated(number)

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
