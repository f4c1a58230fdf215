"""For how long a group has been behind: when its next record became readable. Pure.

The time of a record is in the log, and to read it for each partition of each group would be a read
of the disk. What is known without it is how far the log reached at the scrapes before: the record
after the committed offset became readable between two of them, and counts from the later one.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

MAX_SAMPLES: Final = 240
"""Scrapes that are remembered for a partition; then every second one is dropped, but for the
newest: what happened long ago is known less exactly."""


class EndOffsets:
    """How far one partition reached, and when. Times are in seconds."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._times: list[float] = []

    def note(self, end_offset: int, now_s: float) -> None:
        """Take note of how far the partition reaches now."""
        if self._ends and end_offset < self._ends[-1]:  # the topic is another one, or was cut
            self._ends.clear()
            self._times.clear()
        if self._ends and self._ends[-1] == end_offset:
            return
        self._ends.append(end_offset)
        self._times.append(now_s)
        if len(self._ends) > MAX_SAMPLES:
            self._ends = self._ends[:-1:2] + self._ends[-1:]
            self._times = self._times[:-1:2] + self._times[-1:]

    def lag_seconds(self, committed_offset: int, now_s: float) -> float:
        """Return for how long the record at an offset has been readable, 0 where there is none."""
        at = bisect_right(self._ends, committed_offset)
        return max(0.0, now_s - self._times[at]) if at < len(self._ends) else 0.0
