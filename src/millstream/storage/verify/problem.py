"""What a check found wrong in a file, and what a broker makes of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. ``position`` is a byte in a binary file, a line (from 1) in a text file, None
    when it is the file as a whole.
    """

    path: str
    position: int | None
    what: str
    broker: str
    """What a broker does about it, or what it does to those who read."""
