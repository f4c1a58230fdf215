"""What the threads beside the loop do: how many tasks, how long they wait and take.

The time of a flush is that of a task in the lane ``flush <directory>``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

from millstream.model.deferred import Deferred
from millstream.runtime.offload import Offload
from millstream.server.metrics import catalogue
from millstream.server.metrics.families import Family
from millstream.server.metrics.histogram import Histogram
from millstream.server.metrics.of_logs import Part

T = TypeVar("T")

_FLUSH = "flush "


@dataclass(slots=True)
class _Lane:
    """One lane. Its thread writes the times, the loop reads them."""

    given: int = 0
    done: int = 0
    wait_s: float = 0.0
    times: Histogram = field(default_factory=Histogram)


class MeasuredOffload:
    """Measures what it passes on to another offload."""

    def __init__(self, offload: Offload) -> None:
        self._offload = offload
        self._lanes: dict[str, _Lane] = {}

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` as the offload does."""
        measured = self._lanes.get(lane)
        if measured is None:
            measured = self._lanes[lane] = _Lane()
        kept = measured
        kept.given += 1
        given_s = perf_counter()

        def work() -> T:
            began_s = perf_counter()
            kept.wait_s += began_s - given_s
            try:
                return function()
            finally:
                kept.times.add(perf_counter() - began_s)
                kept.done += 1

        return self._offload.run(lane, work)

    def close(self) -> None:
        """Finish what was given, then end the workers."""
        self._offload.close()

    def collect(self) -> Part:
        """Yield the families of lanes and of flushes."""
        tasks, waiting = Family(catalogue.LANE_TASKS), Family(catalogue.LANE_QUEUE)
        seconds, waited = Family(catalogue.LANE_SECONDS), Family(catalogue.LANE_WAITED)
        flushes = Family(catalogue.FLUSH)
        for name, lane in sorted(self._lanes.items()):
            tasks.add(lane.done, name)
            waiting.add(max(0, lane.given - lane.done), name)
            seconds.add(lane.times.sum, name)
            waited.add(lane.wait_s, name)
            if name.startswith(_FLUSH):
                flushes.add_histogram(lane.times, name.removeprefix(_FLUSH))
        yield from (tasks, waiting, seconds, waited, flushes)
