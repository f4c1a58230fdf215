"""The four offsets of a log, and the order that always holds between them.

::

    log start  <=  last stable  <=  high watermark  <=  log end

The recovery point is kept in ``durability``.
"""

from __future__ import annotations

from millstream.model.offsets import Offset


class LogOffsets:
    """The offsets of one log."""

    __slots__ = (
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, *, log_start_offset: Offset, log_end_offset: Offset) -> None:
        self.set(log_start_offset, log_start_offset, log_start_offset, log_end_offset)

    def set(
        self,
        log_start_offset: Offset,
        last_stable_offset: Offset,
        high_watermark: Offset,
        log_end_offset: Offset,
    ) -> None:
        """Set all four. A wrong order is a programming error and raises AssertionError."""
        assert 0 <= log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
        self.log_start_offset = log_start_offset
        self.last_stable_offset = last_stable_offset
        self.high_watermark = high_watermark
        self.log_end_offset = log_end_offset

    def advance_log_end(self, offset: Offset) -> None:
        """Advance the log end alone."""
        assert offset >= self.log_end_offset
        self.log_end_offset = offset

    def commit(self, high_watermark: Offset) -> None:
        """Set the high watermark and the last stable offset, when no transaction is undecided."""
        assert self.log_start_offset <= high_watermark <= self.log_end_offset
        self.high_watermark = self.last_stable_offset = high_watermark
