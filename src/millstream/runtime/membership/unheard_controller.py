"""Looks into the metadata store while the controller tells this broker nothing.

A controller pushes to every broker several times a second. One that can open no connection to this
broker (its certificate has expired, its listener is ill) goes on deciding: this broker leads what
it does not know of, and others follow it in leader epochs that it has not heard of. The store has
all of that. Looks begin after ``SILENCE_MS`` without a push, and again with each controller that
registers; the pauses between them double from ``FIRST_PAUSE_MS`` to ``LONGEST_PAUSE_MS``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.model.clock import Clock, TimerHandle
from millstream.runtime.controlling.controller_election import RegisteredController

INTERVAL_MS: Final = 500.0
SILENCE_MS: Final = 2_000.0
"""Eight pushes are missing then: a successor that can reach this broker has pushed by now."""
FIRST_PAUSE_MS: Final = 1_000.0
LONGEST_PAUSE_MS: Final = 8_000.0


class UnheardController:
    """When this broker looks. ``registered`` returns the controller on another broker, None while
    there is nothing to look for; ``look`` is called with it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        registered: Callable[[], RegisteredController | None],
        look: Callable[[RegisteredController], None],
    ) -> None:
        self._clock = clock
        self._registered = registered
        self._look = look
        self._timer: TimerHandle | None = None
        self._heard_ms = 0.0
        self._last: RegisteredController | None = None
        """The controller for which was looked last."""
        self._pause_ms = FIRST_PAUSE_MS
        self._not_before_ms = 0.0

    def start(self) -> None:
        """Look from now on, where there is a reason."""
        self.heard()
        self._timer = self._clock.call_later(INTERVAL_MS, self._tick)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def heard(self) -> None:
        """Take note of a push."""
        self._heard_ms = self._clock.monotonic_ms()
        self._last = None

    def _tick(self) -> None:
        self._timer = self._clock.call_later(INTERVAL_MS, self._tick)
        registered = self._registered()
        if registered is None:
            self.heard()
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._heard_ms < SILENCE_MS:
            return
        if registered != self._last:
            self._last = registered
            self._pause_ms = FIRST_PAUSE_MS
        elif now_ms < self._not_before_ms:
            return
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        self._look(registered)
