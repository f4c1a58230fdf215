"""Blocking work of a simulated process: done after a while of virtual time, lane by lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.model.deferred import Deferred
from millstream.sim.loop import Loop, NodeClock

T = TypeVar("T")


class SimOffload:
    """A ``runtime.offload.Offload`` whose work takes the time of a disk. Work that had not begun
    when the process died is never done.
    """

    def __init__(self, loop: Loop, clock: NodeClock) -> None:
        self._loop = loop
        self._clock = clock
        self._free_ms: dict[str, float] = {}
        self.slow_ms = 0.0
        """Extra time of each piece of work, at most: a slow disk."""
        self.move_ms = 0.0
        """Extra time of each piece of a move between log directories, at most: a long copy."""

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Do ``function`` after what the lane was given before."""
        outcome: Deferred[T] = Deferred()
        chance = self._loop.chance
        takes_ms = 0.1 + chance.random() + self.slow_ms * chance.random()
        if lane.startswith("move "):
            takes_ms += self.move_ms * chance.random()
        begin_ms = max(self._loop.now_ms, self._free_ms.get(lane, 0.0))
        self._free_ms[lane] = begin_ms + takes_ms

        def work() -> None:
            try:
                value = function()
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)

        delay_ms = begin_ms + takes_ms - self._loop.now_ms
        self._loop.call_later(delay_ms, lambda: self._clock.run(work))
        return outcome

    def close(self) -> None:
        """Nothing is left to end."""
