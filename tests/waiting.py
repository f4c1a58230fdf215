"""Waiting for what has to come about, however slow the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], what: str, *, at_most_s: float = 60) -> None:
    """Return once ``condition`` holds; AssertionError with ``what`` when it never does."""
    deadline = time.monotonic() + at_most_s
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)
