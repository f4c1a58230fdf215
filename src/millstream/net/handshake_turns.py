"""How many handshakes of TLS go on in one pass of the loop.

A step of a handshake is a signature, a millisecond of computation or, with a large key, five. A
thousand peers that say hello at once would keep everybody else waiting for a second; so only a few
go on in each pass, and the others in the passes that follow, in the order in which they came.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import Final

STEPS_PER_PASS: Final = 8


class HandshakeTurns:
    """Shared by all handshakes of a loop that others have begun."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._taken = 0
        """Turns of this pass; while there are some, the next pass is waited for."""
        self._waiting: dict[Callable[[], None], None] = {}

    def take(self, go_on: Callable[[], None]) -> bool:
        """Return True when a handshake may go on now; else ``go_on`` is called when it may, unless
        ``leave`` is called before.
        """
        if self._taken >= STEPS_PER_PASS:
            self._waiting[go_on] = None
            return False
        if not self._taken:
            self._loop.call_soon(self._next_pass)
        self._taken += 1
        return True

    def leave(self, go_on: Callable[[], None]) -> None:
        """Wait no more; harmless for one that does not wait."""
        self._waiting.pop(go_on, None)

    def _next_pass(self) -> None:
        self._taken = 0
        try:
            while self._waiting and self._taken < STEPS_PER_PASS:
                go_on = next(iter(self._waiting))
                del self._waiting[go_on]
                self._taken += 1
                go_on()
        finally:  # the others have their turn, whatever became of this one
            if self._taken:
                self._loop.call_soon(self._next_pass)
