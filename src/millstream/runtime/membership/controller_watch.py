"""Notices that the controller is gone before its session says so.

A controller is heard of several times a second. Where it falls silent, its address is tried: a
process that was killed is known by nobody listening there any more, and another broker may take its
seat at once. One that is paused, or cut off, takes the connection or answers nothing, and its
session decides. Epochs fence it in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from millstream.model.broker import Endpoint
from millstream.model.clock import Clock, TimerHandle
from millstream.runtime.broker_channels import Network, Transport

SILENCE_MS: Final = 700
PROBES: Final = 2
PROBE_TIMEOUT_MS: Final = 1_000
REFUSED: Final = "connection refused"


class Seat(Protocol):
    """What is known of the controller's seat, and how it is taken."""

    def endpoint(self) -> Endpoint | None:
        """Return where the controller listens; None when nobody knows, or it is this broker."""

    def last_heard_ms(self) -> float:
        """Return when the controller was heard of last."""

    def gone(self) -> None:
        """Take the seat: nobody listens where the controller did."""


class ControllerWatch:
    """Looks after the controller, a few times in each period of silence."""

    def __init__(self, clock: Clock, network: Network, seat: Seat) -> None:
        self._clock = clock
        self._network = network
        self._seat = seat
        self._timer: TimerHandle | None = None
        self._probing = False
        self._stopped = False

    def start(self) -> None:
        """Look from now on."""
        self._timer = self._clock.call_later(SILENCE_MS / 3, self._tick)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = self._clock.call_later(SILENCE_MS / 3, self._tick)
        silent_ms = self._clock.monotonic_ms() - self._seat.last_heard_ms()
        endpoint = self._seat.endpoint()
        if self._probing or endpoint is None or silent_ms < SILENCE_MS:
            return
        self._probing = True
        self._probe(endpoint, PROBES)

    def _probe(self, endpoint: Endpoint, remaining: int) -> None:
        def told(refused: bool) -> None:
            if self._stopped or not refused or self._seat.endpoint() != endpoint:
                self._probing = False
            elif remaining > 1:
                self._clock.call_later(50, lambda: self._probe(endpoint, remaining - 1))
            else:
                self._probing = False
                self._seat.gone()

        Probe(self._clock, self._network, endpoint, told)


class Probe:
    """One attempt to connect. ``told(refused)`` hears once whether nobody listens."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        endpoint: Endpoint,
        told: Callable[[bool], None],
    ) -> None:
        self._told: Callable[[bool], None] | None = told
        self._timer = clock.call_later(PROBE_TIMEOUT_MS, lambda: self._tell(False))
        self._transport: Transport = network.open(endpoint.host, endpoint.port, self)

    def connected(self) -> None:
        """Somebody listens."""
        self._tell(False)

    def frame_received(self, frame: memoryview) -> None:
        """Nothing was asked, so nothing is expected."""

    def closed(self, reason: str) -> None:
        """The attempt failed; only a refusal proves that nobody listens."""
        self._tell(REFUSED in reason)

    def _tell(self, refused: bool) -> None:
        told, self._told = self._told, None
        if told is not None:
            self._timer.cancel()
            self._transport.close()
            told(refused)
