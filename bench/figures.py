"""Figures that stand for themselves: a time, a size, with a bound of their own (B4)."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field


@dataclass
class Figure:
    """Values of one measured thing per subject; `at_most` is what Millstream's median may be, or,
    where the `worst` counts, the largest value.
    """

    name: str
    unit: str
    digits: int = 0
    at_most: float | None = None
    values: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    note: str = ""
    worst: bool = False

    def add(self, subject: str, value: float) -> None:
        """Take one more value of a subject."""
        self.values.setdefault(subject, []).append(value)

    def median(self, subject: str) -> float | None:
        """Return the median of a subject's values."""
        values = self.values.get(subject)
        return statistics.median(values) if values else None

    def judged(self, subject: str) -> float | None:
        """Return the value that is held against `at_most`."""
        return self.largest(subject) if self.worst else self.median(subject)

    def largest(self, subject: str) -> float | None:
        """Return the largest of a subject's values."""
        return max(self.values.get(subject, []), default=None)

    def p95(self, subject: str) -> float | None:
        """Return the smallest value that 95 % of a subject's values do not exceed."""
        values = sorted(self.values.get(subject, []))
        return values[math.ceil(0.95 * len(values)) - 1] if values else None
