"""A real event loop over real sockets whose time moves when a test says so."""

from __future__ import annotations

import asyncio


class HandLoop(asyncio.SelectorEventLoop):
    """``turn`` runs what is ready and never blocks."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 1000.5

    def time(self) -> float:
        return self._seconds

    def turn(self, times: int = 5) -> None:
        for _ in range(times):
            self.call_soon(self.stop)
            self.run_forever()

    def advance(self, seconds: int) -> None:
        """Let the time go by second by second."""
        for _ in range(seconds):
            self._seconds += 1
            self.turn()
