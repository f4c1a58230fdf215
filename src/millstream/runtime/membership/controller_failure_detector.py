"""Detects that the controller's process has ended before its session with the store does.

The controller pushes to every broker several times a second. While nothing comes, its address is
tried: one that refuses connections (ECONNREFUSED, twice) has no process any more, and another
broker may replace the controller at once. One that is paused or cut off accepts the connection or
answers nothing, and its session decides. Controller epochs fence it in any case.

`failure_detector` detects the same by connections that are closed; this one acts where no
connection was open.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.model.broker import Endpoint
from millstream.model.clock import Clock, TimerHandle
from millstream.runtime.broker_channels import Network, Transport

SILENCE_MS: Final = 700
PROBES: Final = 2
PROBE_AGAIN_MS: Final = 50
PROBE_TIMEOUT_MS: Final = 1_000
REFUSED: Final = "connection refused"


class ControllerFailureDetector:
    """Looks for the controller three times in each period of silence.

    ``endpoint`` tells where it listens, None when that is not known or it is this broker.
    ``on_gone`` is called when its address refuses connections.
    """

    def __init__(
        self,
        clock: Clock,
        network: Network,
        *,
        endpoint: Callable[[], Endpoint | None],
        on_gone: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._network = network
        self._endpoint = endpoint
        self._on_gone = on_gone
        self._last_heard_ms = 0.0
        self._timer: TimerHandle | None = None
        self._probing = False
        self._stopped = False

    def start(self) -> None:
        """Look from now on."""
        self.heard()
        self._timer = self._clock.call_later(SILENCE_MS / 3, self._tick)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def heard(self) -> None:
        """Take note that the controller lives."""
        self._last_heard_ms = self._clock.monotonic_ms()

    def _tick(self) -> None:
        if self._stopped:
            return
        self._timer = self._clock.call_later(SILENCE_MS / 3, self._tick)
        silent_ms = self._clock.monotonic_ms() - self._last_heard_ms
        endpoint = self._endpoint()
        if endpoint is None:
            self.heard()  # whoever becomes the controller is given the whole time
            return
        if self._probing or silent_ms < SILENCE_MS:
            return
        self._probing = True
        self._probe(endpoint, PROBES)

    def _probe(self, endpoint: Endpoint, remaining: int) -> None:
        def probed(refused: bool) -> None:
            if self._stopped or not refused or self._endpoint() != endpoint:
                self._probing = False
            elif remaining > 1:
                self._clock.call_later(PROBE_AGAIN_MS, lambda: self._probe(endpoint, remaining - 1))
            else:
                self._probing = False
                self.heard()  # whoever replaces it is given the same time
                self._on_gone()

        Probe(self._clock, self._network, endpoint, probed)


class Probe:
    """One attempt to connect. ``on_result(refused)`` is called once."""

    def __init__(
        self,
        clock: Clock,
        network: Network,
        endpoint: Endpoint,
        on_result: Callable[[bool], None],
    ) -> None:
        self._on_result: Callable[[bool], None] | None = on_result
        self._timer = clock.call_later(PROBE_TIMEOUT_MS, lambda: self._end(False))
        self._transport: Transport = network.open(endpoint.host, endpoint.port, self)

    def connected(self) -> None:
        """A process listens there."""
        self._end(False)

    def frame_received(self, frame: memoryview) -> None:
        """Nothing is sent, so nothing is expected."""

    def closed(self, reason: str) -> None:
        """The attempt failed; only a refusal proves that no process listens."""
        self._end(REFUSED in reason)

    def _end(self, refused: bool) -> None:
        on_result, self._on_result = self._on_result, None
        if on_result is not None:
            self._timer.cancel()
            self._transport.close()
            on_result(refused)
