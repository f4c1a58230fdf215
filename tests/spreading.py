"""Merges lists so that the items of each are spread evenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def spread(*lists: Sequence[T]) -> list[T]:
    """Return the items of all lists, each list in its order and evenly from begin to end."""
    placed = [
        ((number + 0.5) / len(items), item) for items in lists for number, item in enumerate(items)
    ]
    return [item for _, item in sorted(placed, key=lambda each: each[0])]
