"""Deadlines by key, in order of time, cheap to move.

Moving a deadline later, which every heartbeat does, is one dictionary store: the heap keeps the
entry it has, and when that entry comes up too early it is put back with the current deadline. So
a key has one heap entry however often it moved, and one more when it moved earlier.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """The deadline of each key, in milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        self._deadline: dict[K, float] = {}
        self._entry: dict[K, float] = {}
        """The time of the one heap entry that counts for a key; it is never after its deadline."""
        self._heap: list[tuple[float, int, K]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._deadline)

    def __contains__(self, key: K) -> bool:
        return key in self._deadline

    def set(self, key: K, deadline_ms: float) -> None:
        """Give the key a deadline in place of the one it may have."""
        self._deadline[key] = deadline_ms
        entry = self._entry.get(key)
        if entry is None or deadline_ms < entry:
            self._push(key, deadline_ms)

    def cancel(self, key: K) -> None:
        """Remove the key's deadline, if it has one."""
        if self._deadline.pop(key, None) is not None:
            del self._entry[key]

    def postpone(self, by_ms: float) -> None:
        """Move every deadline later."""
        for key in self._deadline:
            self._deadline[key] += by_ms

    def deadline(self, key: K) -> float | None:
        """Return the key's deadline, or None."""
        return self._deadline.get(key)

    @property
    def next_ms(self) -> float | None:
        """When :meth:`pop_due` should be called next: never after the earliest deadline, at times
        before it. None when nothing is set.
        """
        heap = self._heap
        while heap and self._entry.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now_ms: float) -> K | None:
        """Remove and return one key whose deadline is reached, the earliest first; None if there is
        none.
        """
        while (entry_ms := self.next_ms) is not None and entry_ms <= now_ms:
            key = heapq.heappop(self._heap)[2]
            deadline_ms = self._deadline[key]
            if deadline_ms <= now_ms:
                del self._deadline[key], self._entry[key]
                return key
            self._push(key, deadline_ms)
        return None

    def _push(self, key: K, at_ms: float) -> None:
        self._entry[key] = at_ms
        self._pushed += 1
        heapq.heappush(self._heap, (at_ms, self._pushed, key))
