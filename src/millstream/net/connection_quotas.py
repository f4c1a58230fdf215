"""Limits on connections: in all, from one address, and new ones in a second.

The counts are those of the whole broker, whichever listener a peer connected to (Kafka:
``ConnectionQuotas``). At the limit in all, and at the limit of new ones in a second, the broker
stops accepting and peers wait in the backlog of the listening socket. A connection over the limit
of its address is accepted and closed.

A listener that is for brokers alone checks only the limit of an address, for clients must not keep
followers from their leader. Its connections count in all: when they exceed the limit, connections
of clients are closed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How much a peer may ask of the broker before it is served at all."""

    max_frame_bytes: int = 100 * 1024 * 1024
    max_connections: int = _NO_LIMIT
    max_connections_per_ip: int = _NO_LIMIT
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    """Addresses as text, each with a limit of its own."""
    max_creation_rate: int = _NO_LIMIT
    """New connections in a second."""
    last_descriptor: int = _NO_LIMIT
    """The highest file descriptor that a client may take: what follows is left to files."""
    idle_ms: int = 600_000
    """Negative: a peer may be silent for ever."""
    frame_deadline_ms: int = 30_000
    authentication_ms: int = 10_000
    """From the connection to the end of its TLS handshake and its SASL exchange."""
    backlog: int = 50
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


class Rates(Protocol):
    """Quotas of new connections of addresses."""

    def connected(self, address: str, now_ms: float) -> int:
        """Count a new connection; return how long it is to be held back, 0 for one that is let
        in.
        """


class ConnectionQuotas:
    """The connections that are open, counted against the limits."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._by_host: Counter[str] = Counter()
        self._second = -1
        self._accepted_this_second = 0
        self.rates: Rates | None = None
        """How many connections addresses may make in a second; None while none has a quota."""
        self.set_limits(limits)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Put other limits in force; connections that are open stay."""
        self.limits = limits
        self._per_ip = dict(limits.max_connections_per_ip_overrides)

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return self._by_host.total()

    @property
    def excess(self) -> int:
        """How many connections more are open than may be."""
        return max(0, self.connection_count - self.limits.max_connections)

    def may_accept(self, now: float) -> bool:
        """Tell whether one more peer may be taken from a backlog; ``now`` is in seconds."""
        if self._second != int(now):
            self._second = int(now)
            self._accepted_this_second = 0
        limits = self.limits
        return (
            self._accepted_this_second < limits.max_creation_rate
            and self.connection_count < limits.max_connections
        )

    def admit(self, host: str, *, is_client: bool = True) -> bool:
        """Count a peer that was accepted; False when its address has too many already."""
        self._accepted_this_second += is_client
        if self._by_host[host] >= self._per_ip.get(host, self.limits.max_connections_per_ip):
            return False
        self._by_host[host] += 1
        return True

    def release(self, host: str) -> None:
        """Count out a peer that was admitted and has gone."""
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
