"""Differences from Kafka that are meant. Each names the decision record that explains it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final


@dataclass(frozen=True)
class Allowed:
    """Lines that ``pattern`` finds in scenarios whose name ``scenario`` matches are no fault."""

    scenario: str
    pattern: str
    decision: str

    def covers(self, scenario: str, line: str) -> bool:
        """Whether ``line``, one difference of ``scenario``, is meant."""
        return fnmatch(scenario, self.scenario) and re.search(self.pattern, line) is not None


ALLOWED: Final[tuple[Allowed, ...]] = ()


def unexplained(scenario: str, lines: list[str]) -> list[str]:
    """Return the differences that no entry covers."""
    return [line for line in lines if not any(entry.covers(scenario, line) for entry in ALLOWED)]
