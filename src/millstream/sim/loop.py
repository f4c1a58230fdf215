"""The loop of a simulation: virtual time, one heap, one source of chance, a hash of what happened.

Nothing here knows the machine's time. Events of the same moment run in the order in which they were
given, so one seed gives one history.
"""

from __future__ import annotations

import hashlib
import heapq
import traceback
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

WALL_START_MS: Final = 1_700_000_000_000
"""What the clocks on the wall show when a simulation begins."""
RESOLUTION_MS: Final = 0.001
"""The shortest time that a timer of a process lasts."""


class Timer:
    """Something that happens later, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Let it not happen."""
        self.callback = None


class Loop:
    """Virtual time in milliseconds from 0 on."""

    def __init__(self, seed: int) -> None:
        self.now_ms = 0.0
        self.chance = Random(seed)
        """Where all chance comes from; part of the seed's history."""
        self.uncaught: list[str] = []
        """What callbacks of processes have raised: an event loop logs it and goes on."""
        self.events = 0
        self.most_events: int | None = None
        """After how many a run is given up: an endless loop of events takes no virtual time."""
        self._heap: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._trace = hashlib.blake2b(digest_size=8)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` after ``delay_ms``."""
        timer = Timer(callback)
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + max(0.0, delay_ms), self._count, timer))
        return timer

    def run_until(self, end_ms: float) -> None:
        """Let time pass up to ``end_ms``."""
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(heap)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.now_ms = due_ms
                self.events += 1
                if self.events == self.most_events:
                    raise RuntimeError(f"{self.events} events are too many")
                callback()
        self.now_ms = max(self.now_ms, end_ms)

    def note(self, *what: object) -> None:
        """Make something part of the trace."""
        self._trace.update(f"{self.now_ms:.3f}{what}".encode())

    @property
    def trace_hash(self) -> str:
        """Sixteen hexadecimal digits over everything noted so far."""
        return self._trace.hexdigest()


class NodeClock:
    """The clock of one process (``model.clock.Clock``): its rate is its own, and nothing runs in a
    process that is paused or dead.

    What comes due during a pause runs at its end, in order, as after a SIGSTOP.
    """

    def __init__(self, loop: Loop, *, rate: float = 1.0, wall_offset_ms: int = 0) -> None:
        self._loop = loop
        self._rate = rate
        self._wall_ms = WALL_START_MS + wall_offset_ms
        self._held: list[Callable[[], None]] | None = None
        self.is_dead = False

    def now_ms(self) -> int:
        """What the clock on the wall shows."""
        return self._wall_ms + int(self._loop.now_ms * self._rate)

    def set_wall_offset(self, offset_ms: int) -> None:
        """Let the clock on the wall be off by so much; the monotonic one knows nothing of it."""
        self._wall_ms = WALL_START_MS + offset_ms

    def monotonic_ms(self) -> float:
        """A time that never goes back, at this machine's own rate."""
        return self._loop.now_ms * self._rate

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run ``callback`` when this clock has gone on by ``delay_ms``."""
        timer = Timer(callback)
        if delay_ms > 0:  # time goes on, or whoever waits for a fraction of nothing waits for ever
            delay_ms = max(delay_ms, RESOLUTION_MS)
        self._loop.call_later(delay_ms / self._rate, lambda: self._fire(timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after what runs now."""
        self._loop.call_later(0, lambda: self.run(callback))

    def run(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` in this process: now, after its pause, or never when it is dead."""
        if self.is_dead:
            return
        if self._held is not None:
            self._held.append(callback)
            return
        try:
            callback()
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self._loop.uncaught.append(f"{error!r} at {frame.filename}:{frame.lineno}")

    def pause(self) -> None:
        """Stop as SIGSTOP does."""
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        """Go on, first with all that came due."""
        held, self._held = self._held, None
        for callback in held or ():
            self._loop.call_later(0, partial(self.run, callback))

    def _fire(self, timer: Timer) -> None:
        def fire() -> None:
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

        if timer.callback is not None:
            self.run(fire)
