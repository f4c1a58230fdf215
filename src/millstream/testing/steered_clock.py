"""The clock of a broker under test: real time, and how far a test has advanced it.

An advance is one jump, as when a machine wakes up: what came due meanwhile runs once, in the order
of its time. Nothing is ever set back.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle
from collections.abc import Callable

from millstream.model.clock import TimerHandle
from millstream.model.deferred import Deferred
from millstream.runtime.clock import LoopClock
from millstream.runtime.offload import T, ThreadOffload


class SteeredTimer:
    """A timer that an advance brings closer."""

    __slots__ = ("_callback", "_clock", "due_ms", "handle")

    def __init__(self, clock: SteeredClock, due_ms: float, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self.due_ms = due_ms
        self.handle: Handle | None = None

    def cancel(self) -> None:
        """Do not run."""
        self._clock.timers.pop(id(self), None)
        if self.handle is not None:
            self.handle.cancel()

    def fire(self) -> None:
        """Run."""
        self._clock.timers.pop(id(self), None)
        self._callback()


class SteeredClock(LoopClock):
    """Time of the machine and more (``model.clock.Clock``)."""

    def __init__(self, loop: AbstractEventLoop, ahead_ms: float) -> None:
        super().__init__(loop)
        self._steered_loop = loop
        self.ahead_ms = ahead_ms
        self.timers: dict[int, SteeredTimer] = {}

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds, ahead of the machine's."""
        return super().now_ms() + int(self.ahead_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back, ahead of the machine's."""
        return super().monotonic_ms() + self.ahead_ms

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle:
        """Run ``callback`` when ``delay_ms`` have passed, or were advanced over."""
        timer = SteeredTimer(self, self.monotonic_ms() + delay_ms, callback)
        self.timers[id(timer)] = timer
        timer.handle = self._steered_loop.call_later(max(0.0, delay_ms) / 1000, timer.fire)
        return timer

    def advance(self, by_ms: float) -> None:
        """Jump; what came due runs in the next pass of the loop."""
        self.ahead_ms += by_ms
        now_ms = self.monotonic_ms()
        for timer in sorted(self.timers.values(), key=lambda each: each.due_ms):
            assert timer.handle is not None
            timer.handle.cancel()
            if timer.due_ms <= now_ms:
                timer.handle = self._steered_loop.call_soon(timer.fire)
            else:
                left_s = (timer.due_ms - now_ms) / 1000
                timer.handle = self._steered_loop.call_later(left_s, timer.fire)

    def owes(self) -> bool:
        """Tell whether a timer is due that has not run."""
        now_ms = self.monotonic_ms()
        return any(each.due_ms <= now_ms for each in self.timers.values())


class ClusterClock(LoopClock):
    """Wall-clock time of a steered clock, with the timers and the monotonic time of the machine:
    leases and sessions between processes are not advanced over.
    """

    def __init__(self, loop: AbstractEventLoop, steered: SteeredClock) -> None:
        super().__init__(loop)
        self._steered = steered

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds, ahead of the machine's."""
        return self._steered.now_ms()


class CountedOffload(ThreadOffload):
    """Worker threads, and how much they have to do."""

    def __init__(self, call_on_loop: Callable[[Callable[[], None]], object]) -> None:
        super().__init__(call_on_loop)
        self.working = 0

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Queue ``function`` on its lane's thread."""
        self.working += 1
        outcome = super().run(lane, function)
        outcome.on_done(self._done)
        return outcome

    def _done(self, _: object) -> None:
        self.working -= 1
