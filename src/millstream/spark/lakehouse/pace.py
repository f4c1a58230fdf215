"""How fast a load is, how far behind, and how long it still takes. Pure: the time is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from millstream.spark.lakehouse.batches import BatchReport

WINDOW_S: Final = 60.0
"""Rates are those of the batches of so many seconds, and of one batch at least."""


@dataclass(frozen=True, slots=True)
class _Moment:
    now_s: float
    rows: int
    read_bytes: int
    behind: int


class Pace:
    """The rates of a load, from the reports of its batches.

    The time to go is what is behind divided by the speed at which that becomes less: what producers
    write meanwhile counts too.
    """

    def __init__(self) -> None:
        self._moments: deque[_Moment] = deque()
        self.lag_seconds: float | None = None

    def add(self, report: BatchReport, now_s: float) -> None:
        """Take note of a batch that was committed just now."""
        if not self._moments:
            started = now_s - report.seconds
            self._moments.append(_Moment(started, 0, 0, report.behind + report.offsets))
        last = self._moments[-1]
        self._moments.append(
            _Moment(
                now_s,
                last.rows + report.rows,
                last.read_bytes + report.read_bytes,
                report.behind,
            )
        )
        while len(self._moments) > 2 and self._moments[1].now_s <= now_s - WINDOW_S:
            self._moments.popleft()
        self.lag_seconds = report.lag_seconds

    @property
    def rows_per_second(self) -> float:
        """Rows of the window."""
        return self._rate(lambda first, last: last.rows - first.rows)

    @property
    def bytes_per_second(self) -> float:
        """Bytes of log of the window."""
        return self._rate(lambda first, last: last.read_bytes - first.read_bytes)

    @property
    def behind(self) -> int:
        """Offsets that are in the topics and not in the table."""
        return self._moments[-1].behind if self._moments else 0

    @property
    def seconds_to_go(self) -> float | None:
        """Seconds until nothing is behind; None when the load does not gain on the topic."""
        if self._moments and not self.behind:
            return 0.0
        gained = self._rate(lambda first, last: first.behind - last.behind)
        return self.behind / gained if gained > 0 else None

    def _rate(self, of: Callable[[_Moment, _Moment], int]) -> float:
        if len(self._moments) < 2:
            return 0.0
        first, last = self._moments[0], self._moments[-1]
        return of(first, last) / max(last.now_s - first.now_s, 1e-9)


def seconds_in_words(seconds: float) -> str:
    """Return ``8 s``, ``12 min``, ``3.5 h``, ``4 d``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds / 3_600:.1f} h"
    return f"{seconds / 86_400:.0f} d"
