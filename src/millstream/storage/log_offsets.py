"""The four offsets of a log, and the order in which they always stand.

::

    log start  <=  last stable  <=  high watermark  <=  log end

What is on disk for certain is another matter (``durability``).
"""

from __future__ import annotations

from millstream.model.offsets import Offset


class LogOffsets:
    """Where a log begins, what is committed, where it ends."""

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
        """Set all four; an order that cannot be is our own error and stops the broker."""
        assert 0 <= log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
        self.log_start_offset = log_start_offset
        self.last_stable_offset = last_stable_offset
        self.high_watermark = high_watermark
        self.log_end_offset = log_end_offset

    def advance_log_end(self, offset: Offset) -> None:
        """Move the log end alone, which only ever goes up by itself."""
        assert offset >= self.log_end_offset
        self.log_end_offset = offset

    def commit(self, high_watermark: Offset) -> None:
        """Set the high watermark, and the last stable offset with it: nothing is undecided."""
        assert self.log_start_offset <= high_watermark <= self.log_end_offset
        self.high_watermark = self.last_stable_offset = high_watermark
