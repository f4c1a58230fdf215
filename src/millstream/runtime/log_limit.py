"""Lines of the log that strangers can cause: at most so many a second, and how many were left out.

A refused login, a refused authorization and a handshake that fails each write a line, and whoever
wants to can cause ten thousand a second: they would fill the disk and hide everything else. Lines
are counted by their kind, which is the format string, so that one kind does not displace another.
Errors are always written, and so is what somebody asked for by DEBUG.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from millstream.model.clock import Clock

LINES_PER_SECOND: Final = 20
WINDOW_MS: Final = 1_000

LIMITED: Final = (
    "kafka.authorizer.logger",
    "millstream.net.connection",
    "millstream.net.listener",
    "millstream.net.peer_authentication",
    "millstream.net.transport",
    "millstream.server.metrics.request_meter",
    "millstream.server.sasl_session",
)
"""The loggers whose lines peers can cause before anybody knows them, or without being allowed
anything."""

LEFT_OUT: Final = "%d more lines of this kind were left out in %.1f s: %s"


class Kind(NamedTuple):
    """What lines have in common that are counted together."""

    logger: str
    level: int
    text: str


class LineCounts:
    """Lines of each kind in one window of time. Times are milliseconds of any clock."""

    def __init__(self, per_window: int, *, now_ms: float) -> None:
        self._per_window = per_window
        self._began_ms = now_ms
        self._counts: dict[Kind, int] = {}
        self.has_left_out = False
        """True once a line of this window was left out: ``end`` has to tell of it."""

    def admits(self, kind: Kind, now_ms: float) -> bool:
        """Count a line; False for one that is to be left out."""
        if not self.has_left_out and now_ms - self._began_ms >= WINDOW_MS:
            self._begin(now_ms)
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= self._per_window:
            return True
        self.has_left_out = True
        return False

    def end(self, now_ms: float) -> tuple[dict[Kind, int], float]:
        """Begin another window; return how many lines of each kind were left out in this one, and
        how many milliseconds it had.
        """
        left_out = {
            kind: count - self._per_window
            for kind, count in self._counts.items()
            if count > self._per_window
        }
        window_ms = now_ms - self._began_ms
        self._begin(now_ms)
        return left_out, window_ms

    def _begin(self, now_ms: float) -> None:
        self._began_ms = now_ms
        self._counts.clear()
        self.has_left_out = False


class LogLimit(logging.Filter):
    """Leaves out lines of some loggers, from ``attach`` to ``detach``; on one loop."""

    def __init__(
        self,
        clock: Clock,
        loggers: Iterable[str] = LIMITED,
        *,
        lines_per_second: int = LINES_PER_SECOND,
    ) -> None:
        super().__init__()
        self._clock = clock
        self._loggers = [logging.getLogger(name) for name in loggers]
        self._counts = LineCounts(lines_per_second, now_ms=clock.monotonic_ms())

    def attach(self) -> None:
        """Begin to count."""
        for logger in self._loggers:
            logger.addFilter(self)

    def detach(self) -> None:
        """Leave out nothing more, and tell of what was left out until now."""
        for logger in self._loggers:
            logger.removeFilter(self)
        self._tell()

    def filter(self, record: logging.LogRecord) -> bool:
        """Decide about one line."""
        if not logging.DEBUG < record.levelno < logging.ERROR or record.msg is LEFT_OUT:
            return True
        kind = Kind(record.name, record.levelno, str(record.msg))
        told = self._counts.has_left_out
        if self._counts.admits(kind, self._clock.monotonic_ms()):
            return True
        if not told:
            self._clock.call_later(WINDOW_MS, self._tell)
        return False

    def _tell(self) -> None:
        left_out, window_ms = self._counts.end(self._clock.monotonic_ms())
        for kind, count in left_out.items():
            logging.getLogger(kind.logger).log(
                kind.level, LEFT_OUT, count, window_ms / 1_000, kind.text
            )
