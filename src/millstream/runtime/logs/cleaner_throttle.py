"""Holds the cleaner's threads together to ``log.cleaner.io.max.bytes.per.second``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_SLICE_SECONDS: Final = 0.1
"""How long a thread waits before it looks whether it is still wanted."""


class CleanerThrottle:
    """Gives out bytes at a rate; whoever wants more waits. Any thread."""

    def __init__(
        self,
        rate: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, count: int, check: Callable[[], None]) -> None:
        """Wait until ``count`` bytes may pass. ``check`` is asked again and again and may raise.

        A thread that need not wait lets others run: the loop, first of all.
        """
        check()
        now = self._monotonic()
        with self._lock:
            start = max(now, self._free_at)
            self._free_at = start + count / max(1.0, self._rate())
        self._sleep(0)
        while (left := start - self._monotonic()) > 0:
            self._sleep(min(left, _SLICE_SECONDS))
            check()
