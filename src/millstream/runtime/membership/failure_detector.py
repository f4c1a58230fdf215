"""Detects at once that another broker's process has ended: one idle connection to each of them.

The operating system closes the connections of a process that ends, and refuses new ones. One that
is paused, or cut off, keeps its connections or leaves attempts unanswered. So, for each broker::

                 connected                closed
    trying ───────────────────▶ held ─────────────────▶ missing ──refused twice──▶ gone
      ▲                          │ ▲                       │                        │
      └──no answer, tried later──┘ └──────connected────────┴────────────────────────┘

* **missing**: the connection was closed, or an attempt refused. Clients are not sent there.
* **gone**: two attempts in a row were *refused* (ECONNREFUSED, nothing else). ``on_gone`` is called
  once: the controller may delete the broker's registration, the others may replace it as the
  controller.

A held connection is replaced by a new one from time to time: before the other side closes it for
being idle, and because a machine that lost its power closes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.clock import Clock, TimerHandle
from millstream.runtime.broker_channels import Network, Transport
from millstream.runtime.metadata.metadata_cache import MetadataCache

REFUSED: Final = "connection refused"
REFUSALS: Final = 2
AGAIN_MS: Final = 30.0
"""From a first refusal to the attempt that is to confirm it."""
RETRY_MS: Final = 250.0
RENEW_MS: Final = 60_000.0
UNAUTHENTICATED_RENEW_MS: Final = 4_000.0
"""Where brokers authenticate to each other by SASL: these connections do not, so the other side
closes them at its deadline."""
ATTEMPT_TIMEOUT_MS: Final = 1_000.0
SHORT_MS: Final = 1_000.0
"""A connection that is closed earlier than this is no reason to try again at once: a process that
ends may take one in between, and one that has too many takes and closes them all."""
SHORT_ONES: Final = 3
"""So many short connections in a row are each followed by another one soon; others later."""


class FailureDetector:
    """Watches each live broker but this one. ``on_gone(node)`` is called when its process is gone.

    Brokers that are missing stand in ``cache.missing`` meanwhile.
    """

    def __init__(
        self,
        clock: Clock,
        network: Network,
        cache: MetadataCache,
        broker_id: BrokerId,
        *,
        listener_name: str,
        on_gone: Callable[[BrokerNode], None],
        renew_ms: float = RENEW_MS,
    ) -> None:
        self._clock = clock
        self._network = network
        self._cache = cache
        self._broker_id = broker_id
        self._listener_name = listener_name
        self._on_gone = on_gone
        self._renew_ms = renew_ms
        self._monitors: dict[BrokerId, tuple[BrokerNode, BrokerMonitor]] = {}
        self._stopped = True

    def start(self) -> None:
        """Watch every live broker from now on."""
        self._stopped = False
        self.look()

    def stop(self) -> None:
        """Close every connection."""
        self._stopped = True
        for broker_id in tuple(self._monitors):
            self._end(broker_id)

    def look(self) -> None:
        """Watch brokers that came, and no more those that left; called when live brokers change."""
        if self._stopped:
            return
        for broker_id, (node, _) in tuple(self._monitors.items()):
            if self._cache.brokers.get(broker_id) != node:
                self._end(broker_id)
        for broker_id, node in self._cache.brokers.items():
            if broker_id != self._broker_id and broker_id not in self._monitors:
                self._begin(node)

    def is_gone(self, node: BrokerNode) -> bool:
        """True while the process with this registration is known to have ended."""
        watched = self._monitors.get(node.broker_id)
        return watched is not None and watched[0] == node and watched[1].is_gone

    def _begin(self, node: BrokerNode) -> None:
        monitor = BrokerMonitor(
            self._clock,
            self._network,
            node.endpoint(self._listener_name),
            on_missing=lambda missing: self._note(node.broker_id, missing),
            on_gone=lambda: self._on_gone(node),
            renew_ms=self._renew_ms,
        )
        self._monitors[node.broker_id] = (node, monitor)
        monitor.start()

    def _end(self, broker_id: BrokerId) -> None:
        _, monitor = self._monitors.pop(broker_id)
        monitor.stop()
        self._note(broker_id, False)

    def _note(self, broker_id: BrokerId, missing: bool) -> None:
        if missing:
            self._cache.missing.add(broker_id)
        else:
            self._cache.missing.discard(broker_id)


class BrokerMonitor:
    """Holds a connection to one broker's address; see the states above."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        endpoint: Endpoint,
        *,
        on_missing: Callable[[bool], None],
        on_gone: Callable[[], None],
        renew_ms: float = RENEW_MS,
    ) -> None:
        self._clock = clock
        self._network = network
        self._endpoint = endpoint
        self._on_missing = on_missing
        self._on_gone = on_gone
        self._renew_ms = renew_ms
        self._held: _Connection | None = None
        self._trying: _Connection | None = None
        self._timer: TimerHandle | None = None
        self._refusals = 0
        self._short_ones = 0
        self._stopped = False

    @property
    def is_gone(self) -> bool:
        """True when nobody listens there any more."""
        return self._refusals >= REFUSALS

    def start(self) -> None:
        """Connect, now or anew."""
        if not self._stopped and self._trying is None:
            connection = self._trying = _Connection(self)
            connection.transport = self._network.open(
                self._endpoint.host, self._endpoint.port, connection
            )
            self._later(ATTEMPT_TIMEOUT_MS, lambda: self._failed(connection, "timed out"))

    def stop(self) -> None:
        """Close the connection and call nothing more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in (self._held, self._trying):
            if connection is not None:
                connection.close()
        self._held = self._trying = None

    def _later(self, delay_ms: float, work: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay_ms, work)

    def taken(self, connection: _Connection) -> None:
        """Hold a connection that was accepted, in the stead of the one before."""
        if connection is not self._trying:
            return
        if self._held is not None:
            self._held.close()
        self._held, self._trying = connection, None
        connection.since_ms = self._clock.monotonic_ms()
        self._refusals = 0
        self._on_missing(False)
        self._later(self._renew_ms, self.start)

    def ended(self, connection: _Connection, reason: str) -> None:
        """Decide what a closed connection, or an attempt that failed, means."""
        if connection is self._trying:
            self._failed(connection, reason)
        elif connection is self._held:
            self._held = None
            if self._trying is not None:
                return
            is_short = self._clock.monotonic_ms() - connection.since_ms < SHORT_MS
            self._short_ones = self._short_ones + 1 if is_short else 0
            self._on_missing(self._short_ones <= SHORT_ONES)
            if is_short:
                soon = self._short_ones <= SHORT_ONES
                self._later(AGAIN_MS if soon else RETRY_MS, self.start)
            else:
                self.start()

    def _failed(self, connection: _Connection, reason: str) -> None:
        if connection is not self._trying:
            return
        connection.close()
        self._trying = None
        if REFUSED not in reason:
            self._refusals = 0
            self._on_missing(False)
            self._later(RETRY_MS, self.start)
            return
        self._refusals += 1
        self._later(AGAIN_MS if self._refusals < REFUSALS else RETRY_MS, self.start)
        self._on_missing(True)
        if self._refusals == REFUSALS:
            self._on_gone()


class _Connection:
    """One connection of a monitor (``broker_channels.TransportOwner``)."""

    def __init__(self, monitor: BrokerMonitor) -> None:
        self._monitor = monitor
        self.transport: Transport | None = None
        self.since_ms = 0.0

    def connected(self) -> None:
        """Somebody listens."""
        self._monitor.taken(self)

    def frame_received(self, frame: memoryview) -> None:
        """Nothing is sent, so nothing is expected."""

    def closed(self, reason: str) -> None:
        """The connection is closed, or the attempt failed."""
        self._monitor.ended(self, reason)

    def close(self) -> None:
        """Close and call nothing more."""
        if self.transport is not None:
            self.transport.close()
