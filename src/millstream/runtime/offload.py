"""Blocking work off the loop: fsync, compaction, recompression, SQLite.

``Offload.run`` hands a function to a worker and fills its Deferred back on the loop. Work given
the same ``lane`` runs one after the other in the order given, so a disk has one flusher and a
database one writer; different lanes run side by side.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from millstream.model.deferred import Deferred

T = TypeVar("T")


class Offload(Protocol):
    """Runs functions elsewhere."""

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` after what ``lane`` was given before; the Deferred is filled on the
        loop.
        """

    def close(self) -> None:
        """Finish what was given, then end the workers."""


class InlineOffload:
    """Runs at once, on the caller: for tests and for the simulator."""

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` now."""
        outcome: Deferred[T] = Deferred()
        try:
            value = function()
        except Exception as error:
            outcome.fail(error)
        else:
            outcome.complete(value)
        return outcome

    def close(self) -> None:
        """Nothing is left to end."""


class ThreadOffload:
    """One thread per lane, started on first use; ``call_on_loop`` brings results home."""

    def __init__(self, call_on_loop: Callable[[Callable[[], None]], object]) -> None:
        self._call_on_loop = call_on_loop
        self._lanes: dict[str, queue.SimpleQueue[Callable[[], None] | None]] = {}
        self._working: dict[str, Callable[[], object]] = {}
        """What each lane does now."""
        self._threads: list[threading.Thread] = []

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Queue ``function`` on its lane's thread."""
        outcome: Deferred[T] = Deferred()

        def work() -> None:
            self._working[lane] = function
            try:
                value = function()
            except Exception as error:
                failure = error
                self._call_on_loop(lambda: outcome.fail(failure))
            else:
                self._call_on_loop(lambda: outcome.complete(value))
            finally:
                self._working.pop(lane, None)

        self._lane(lane).put(work)
        return outcome

    def close(self) -> None:
        """Finish what was given, then end the threads; results that come now fill nothing."""
        for lane in self._lanes.values():
            lane.put(None)
        for thread in self._threads:
            thread.join()
        self._lanes.clear()
        self._threads.clear()

    def work(self) -> Iterator[tuple[str, int, str]]:
        """Yield each lane: its name, how many tasks wait for it, and what it does, if anything."""
        for name, waiting in tuple(self._lanes.items()):
            task = self._working.get(name)
            yield name, waiting.qsize(), "" if task is None else f"works at {task}"

    def _lane(self, name: str) -> queue.SimpleQueue[Callable[[], None] | None]:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = queue.SimpleQueue()
            thread = threading.Thread(
                target=_serve_lane, args=(lane,), name=f"offload-{name}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        return lane


def _serve_lane(lane: queue.SimpleQueue[Callable[[], Any] | None]) -> None:
    while (work := lane.get()) is not None:
        work()
