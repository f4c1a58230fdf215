"""The real clock: the machine's time and the event loop's timers."""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections.abc import Callable

from millstream.model.clock import TimerHandle


class LoopClock:
    """Time of the machine, timers on the broker's loop."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back."""
        return time.monotonic() * 1000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Run ``callback`` after ``delay_ms`` milliseconds."""
        return self._loop.call_later(delay_ms / 1000, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after what runs now."""
        self._loop.call_soon(callback)
