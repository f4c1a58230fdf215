"""How many random examples a property test draws."""

from __future__ import annotations

SHARE = 1
"""One of so many examples is drawn; `pytest --few-examples` sets it before the tests are read."""


def examples(count: int) -> int:
    """Return how many examples to draw where a whole run draws `count`."""
    return max(count // SHARE, 5)
