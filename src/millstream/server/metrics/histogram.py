"""Counts by size, as Prometheus keeps them: cheap to add to, made cumulative when they are read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

SECONDS: Final = (
    0.000_01,
    0.000_025,
    0.000_05,
    0.000_1,
    0.000_25,
    0.000_5,
    0.001,
    0.002_5,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
"""Upper bounds of the buckets of every histogram of times."""


class Histogram:
    """Times in seconds."""

    __slots__ = ("_counts", "sum")

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        """How many times were counted."""
        return sum(self._counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """Yield the bounds of the buckets as texts, each with how many times are not above it."""
        total = 0
        for bound, count in zip((*map(_text, SECONDS), "+Inf"), self._counts, strict=True):
            total += count
            yield bound, total


def _text(bound: float) -> str:
    """Return a bound as prometheus-client writes numbers."""
    return f"{bound:.6f}".rstrip("0") + ("0" if bound == int(bound) else "")
