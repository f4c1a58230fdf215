"""What is kept of a registry's answers. Pure.

An id never means another schema, so a schema is kept for as long as the process lives. That an id
is unknown, or an import of it, is kept for a while only: it may be registered, or come to the node
that answers, later. That a registry could not be asked is never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

V = TypeVar("V")
E = TypeVar("E", bound=Exception)

MOST_KNOWN: Final = 10_000
"""Answers that are kept; the one that was used longest ago goes first."""
UNKNOWN_S: Final = 60.0
"""Seconds for which an unknown id stays unknown without asking again."""


class Known(Generic[V, E]):
    """Answers by what was asked."""

    def __init__(self, most: int = MOST_KNOWN, unknown_s: float = UNKNOWN_S) -> None:
        self._most = most
        self._unknown_s = unknown_s
        self._found: OrderedDict[Hashable, V] = OrderedDict()
        self._refused: OrderedDict[Hashable, tuple[float, E]] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        """Return the answer; None if there is none."""
        if key not in self._found:
            return None
        self._found.move_to_end(key)
        return self._found[key]

    def refusal(self, key: Hashable, now: float) -> E | None:
        """Return why there is no answer; None: ask."""
        until, error = self._refused.get(key, (now, None))
        return error if now < until else None

    def add(self, key: Hashable, answer: V) -> None:
        """Keep an answer."""
        self._refused.pop(key, None)
        self._found[key] = answer
        self._found.move_to_end(key)
        while len(self._found) > self._most:
            self._found.popitem(last=False)

    def add_refusal(self, key: Hashable, error: E, now: float) -> None:
        """Keep for a while why there is no answer."""
        self._refused[key] = (now + self._unknown_s, error)
        self._refused.move_to_end(key)
        while len(self._refused) > self._most:
            self._refused.popitem(last=False)
