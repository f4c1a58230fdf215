"""Time and timers as a parameter: the broker passes real ones, tests and simulator pass twins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A timer that was started."""

    def cancel(self) -> None:
        """Make sure that the callback does not run any more; cancelling twice is harmless."""


class Clock(Protocol):
    """Where time comes from."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since 1970 UTC: what record timestamps are made of."""

    def monotonic_ms(self) -> float:
        """A time that never goes back, milliseconds from an arbitrary start: what time-outs are
        made of.
        """

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Run ``callback`` on the owner's loop after ``delay_ms`` milliseconds."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` on the owner's loop after what runs now has returned."""
