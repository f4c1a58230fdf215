"""Time and timers as a parameter: the broker passes real ones, tests and simulator pass twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A started timer."""

    def cancel(self) -> None:
        """Make sure that the callback does not run any more; cancelling twice is harmless."""


class Clock(Protocol):
    """The source of time."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970 UTC, for record timestamps."""

    def monotonic_ms(self) -> float:
        """Monotonic time in milliseconds from an arbitrary start, for time-outs."""

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Run ``callback`` on the owner's loop after ``delay_ms`` milliseconds."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the owner's loop after the present callback has returned."""
