"""Files that are deleted in two steps: renamed now, removed after ``file.delete.delay.ms``.

The delay lets tools that look at the directory finish. Readers need none: a slice of a file that is
gone stays readable until it is dropped. What a stop leaves behind is removed at the next start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from millstream.model.errors import StorageError


class PendingRemovals:
    """Removals that are due later, of all logs."""

    __slots__ = ("_heap", "_numbers")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, due_ms: int, log_directory: str, remove: Callable[[], None]) -> None:
        """Call ``remove`` at ``due_ms``; ``log_directory`` is to blame when it fails."""
        heapq.heappush(self._heap, (due_ms, next(self._numbers), log_directory, remove))

    @property
    def next_ms(self) -> int | None:
        """When the next removal is due; None if none waits."""
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ms: int) -> None:
        """Remove what is due. Raises StorageError; the rest stays for the next call."""
        while self._heap and self._heap[0][0] <= now_ms:
            _, _, log_directory, remove = heapq.heappop(self._heap)
            try:
                remove()
            except OSError as error:
                raise StorageError(log_directory, f"removal failed: {error}") from error
