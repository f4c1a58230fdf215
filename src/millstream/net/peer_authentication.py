"""The peers of one listener that have not said yet who they are: in the handshake of TLS, or in
that of SASL.

They have a deadline, and ``half_open`` bounds how many there are. Decisions 0085, 0087.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from ssl import SSLContext, SSLObject
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.principal import KafkaPrincipal
from millstream.net.connection import Connection
from millstream.net.connection_quotas import ConnectionQuotas
from millstream.net.half_open import HalfOpen
from millstream.net.handshake_turns import HandshakeTurns
from millstream.net.peer import Peer
from millstream.net.tls_handshake import TlsHandshake
from millstream.net.transport import PlainTransport, Scratch, TlsTransport, Transport

log = logging.getLogger(__name__)


def _unheard(peer: Peer, reason: str) -> None:
    """Tell nobody."""


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


@dataclass(slots=True)
class _HalfOpen:
    """A peer that is not authenticated yet: in the handshake of TLS, or in that of SASL."""

    peer: Peer
    deadline: TimerHandle
    handshake: TlsHandshake | None = None
    connection: Connection | None = None


class PeerAuthentication:
    """Lets peers authenticate, and has them served by ``begin`` as far as they have.

    What is closed here is counted out of ``quotas``, unless its connection does so.
    """

    def __init__(
        self,
        protection: Protection,
        *,
        loop: AbstractEventLoop,
        quotas: ConnectionQuotas,
        begin: Callable[[Transport, Peer], Connection],
    ) -> None:
        self._protection = protection
        self._loop = loop
        self._quotas = quotas
        self._begin = begin
        self.half_open: dict[int, _HalfOpen] = {}
        """The peers that are not authenticated yet, by number."""

    @property
    def protocol(self) -> str:
        """The security protocol of the listener."""
        return self._protection.protocol

    @property
    def handshakes(self) -> int:
        """How many peers are in the handshake of TLS, without a connection."""
        return sum(each.handshake is not None for each in self.half_open.values())

    def close(self) -> None:
        """Close every peer that is half open."""
        for number in list(self.half_open):
            self._drop(number)

    def admit(self, sock: socket.socket, peer: Peer) -> None:
        """Let a peer authenticate: TLS first, then SASL, each where the listener asks for it."""
        protection = self._protection
        number, seconds = peer.connection_id, self._quotas.limits.authentication_ms / 1000
        deadline = self._loop.call_later(seconds, self._give_up, number, "took too long")
        half_open = self.half_open[number] = _HalfOpen(peer, deadline)
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
            self.authenticated(peer.connection_id)
            protection.on_outcome(peer, "")
            self._begin(transport, peer)

    def _turn_away(self, half_open: _HalfOpen, transport: TlsTransport, reason: str) -> None:
        """Close a peer whose certificate names nobody."""
        peer = half_open.peer
        transport.close()
        self._quotas.release(peer.host)
        self.authenticated(peer.connection_id)
        self._protection.on_outcome(peer, reason)

    def _begin_sasl(self, transport: Transport, half_open: _HalfOpen, peer: Peer) -> None:
        on_authenticated = partial(self.authenticated, peer.connection_id)
        peer = replace(peer, on_authenticated=on_authenticated)
        half_open.connection = self._begin(transport, peer)

    def authenticated(self, number: int) -> None:
        """Count a peer out of those that are half open."""
        half_open = self.half_open.pop(number, None)
        if half_open is not None:
            half_open.deadline.cancel()
            half_open.handshake = half_open.connection = None  # they know it, and are freed at once
            self._protection.half_open.remove(number)

    def _handshake_failed(self, half_open: _HalfOpen, reason: str) -> None:
        peer = half_open.peer
        if reason:
            log.info("closed the connection of %s:%d: %s", peer.host, peer.port, reason)
            self._protection.on_outcome(peer, reason)
        self._quotas.release(peer.host)
        self.authenticated(peer.connection_id)

    def _give_up(self, number: int, reason: str) -> None:
        peer = self.half_open[number].peer
        log.info(
            "closing the connection of %s:%d: its authentication %s", peer.host, peer.port, reason
        )
        self._protection.on_outcome(peer, reason)
        self._drop(number)

    def _drop(self, number: int) -> None:
        """Close a peer that is half open."""
        half_open = self.half_open[number]
        if half_open.connection is not None:
            half_open.connection.close()
        elif half_open.handshake is not None:
            half_open.handshake.close()
            self._quotas.release(half_open.peer.host)
        self.authenticated(number)
