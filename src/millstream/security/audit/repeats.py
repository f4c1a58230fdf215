"""Counts the same event for a while instead of recording it again.

The first event of a key is recorded at once. What follows within the interval is counted, and
recorded as one event at its end.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

E = TypeVar("E")

MAX_KEYS: Final = 20_000
"""How many keys are known at once; the oldest ends its interval early for one more."""


@dataclass(slots=True)
class Repeated(Generic[E]):
    """Events that were counted. The times are wall-clock times in milliseconds."""

    event: E
    ends_ms: float
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0


class Repeats(Generic[E]):
    """The events that were recorded a short while ago, by key."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Hashable, Repeated[E]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def count(self, key: Hashable, wall_ms: int, monotonic_ms: float) -> bool:
        """Count an event of a key; False for one that is to be recorded (see :meth:`began`)."""
        found = self._by_key.get(key)
        if found is None or monotonic_ms >= found.ends_ms:
            return False
        if not found.count:
            found.first_ms = wall_ms
        found.count += 1
        found.last_ms = wall_ms
        return True

    def began(self, key: Hashable, event: E, ends_ms: float) -> list[Repeated[E]]:
        """Note that an event is recorded, and count its like until ``ends_ms`` (monotonic). Return
        what was counted of others, or of the same, that end here.
        """
        ended = []
        before = self._by_key.pop(key, None)
        if before is not None:
            ended.append(before)
        elif len(self._by_key) >= MAX_KEYS:
            ended.append(self._by_key.pop(next(iter(self._by_key))))
        self._by_key[key] = Repeated(event, ends_ms)
        return [each for each in ended if each.count]

    def end(self, monotonic_ms: float) -> list[Repeated[E]]:
        """Return what was counted in the intervals that are over, and forget them."""
        over = [key for key, each in self._by_key.items() if monotonic_ms >= each.ends_ms]
        ended = [self._by_key.pop(key) for key in over]
        return [each for each in ended if each.count]

    def end_all(self) -> list[Repeated[E]]:
        """End all intervals now."""
        return self.end(float("inf"))
