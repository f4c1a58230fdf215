"""Files that are deleted in two steps: renamed now, removed after ``file.delete.delay.ms``.

The delay lets tools that look at the directory finish. Readers need none: a slice of a file that is
gone stays readable until it is dropped. What a stop leaves behind is removed at the next start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from itertools import count

from millstream.model.errors import StorageError


class PendingRemovals:
    """Removals that are due later, of all logs."""

    __slots__ = ("_heap", "_looked_ms", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, Callable[[], None]]] = []
        self._numbers = count()
        self._looked_ms = 0
        """The time when somebody last asked what is due."""

    def add(self, due_ms: int, log_directory: str, remove: Callable[[], None]) -> None:
        """Call ``remove`` at ``due_ms``; ``log_directory`` is to blame when it fails."""
        heapq.heappush(self._heap, (due_ms, next(self._numbers), log_directory, remove))

    @property
    def next_ms(self) -> int | None:
        """When the next removal is due; None if none waits."""
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> Callable[[], None] | None:
        """Return a function, safe on another thread, that removes what is due; None when nothing
        is. It removes all that it can, then raises the first StorageError.
        """
        self._follow_clock(now_ms)
        due: list[tuple[str, Callable[[], None]]] = []
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, log_directory, remove = heapq.heappop(self._heap)
            due.append((log_directory, remove))
        return partial(_remove, due) if due else None

    def _follow_clock(self, now_ms: int) -> None:
        """Move what waits where the clock was set back: else it would wait for as much longer, and
        take room on the disk.
        """
        back_ms = self._looked_ms - now_ms
        self._looked_ms = now_ms
        if back_ms > 0:
            self._heap = [
                (due_ms - back_ms, number, log_directory, remove)
                for due_ms, number, log_directory, remove in self._heap
            ]

    def run_due(self, now_ms: int) -> None:
        """Remove what is due now. Raises StorageError."""
        remove = self.take_due(now_ms)
        if remove is not None:
            remove()


def _remove(due: list[tuple[str, Callable[[], None]]]) -> None:
    failure: StorageError | None = None
    for log_directory, remove in due:
        try:
            remove()
        except OSError as error:
            failure = failure or StorageError(log_directory, f"removal failed: {error}")
    if failure is not None:
        raise failure
