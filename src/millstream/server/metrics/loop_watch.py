"""How late the event loop is: by so much a step of it held all others.

A timer that runs twenty times a second is as late as what ran when it was due took.
"""

from __future__ import annotations

from typing import Final

from millstream.model.clock import Clock, TimerHandle
from millstream.server.metrics.histogram import Histogram

TICK_MS: Final = 50.0
WINDOW_MS: Final = 60_000.0


class LoopWatch:
    """Measures the loop of a clock from its construction on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.lag = Histogram()
        self._longest_s = self._longest_before_s = 0.0
        self._window_ms = clock.monotonic_ms()
        self._timer: TimerHandle | None = None
        self._arm()

    @property
    def longest_step_s(self) -> float:
        """The longest lateness of the last one or two minutes, in seconds."""
        return max(self._longest_s, self._longest_before_s)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._due_ms = self._clock.monotonic_ms() + TICK_MS
        self._timer = self._clock.call_later(TICK_MS, self._tick)

    def _tick(self) -> None:
        now_ms = self._clock.monotonic_ms()
        late_s = max(0.0, now_ms - self._due_ms) / 1_000
        self.lag.add(late_s)
        self._longest_s = max(self._longest_s, late_s)
        if now_ms - self._window_ms >= WINDOW_MS:
            self._window_ms = now_ms
            self._longest_before_s, self._longest_s = self._longest_s, 0.0
        self._arm()
