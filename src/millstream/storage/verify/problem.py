"""A problem that a check found in a file, and how a broker reacts to it."""

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
    """How a broker reacts to it, or how it affects readers."""
