"""The four offsets of a log, and the order that always holds between them.

::

    log start  <=  last stable  <=  high watermark  <=  log end

The last stable offset follows from the others and from the transactions that are undecided. The
recovery point is kept in ``durability``.
"""

from __future__ import annotations

from millstream.model.offsets import Offset
from millstream.storage.producer_state import ProducerStateManager


class LogOffsets:
    """The offsets of one log; ``producers`` say which transactions are undecided."""

    __slots__ = (
        "_producers",
        "high_watermark",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
    )

    log_start_offset: Offset
    """First offset that can be read."""
    last_stable_offset: Offset
    """First offset of the oldest undecided transaction, else the high watermark."""
    high_watermark: Offset
    """First offset that is not committed."""
    log_end_offset: Offset
    """The offset that the next record gets."""

    def __init__(
        self,
        producers: ProducerStateManager,
        *,
        log_start_offset: Offset,
        log_end_offset: Offset,
    ) -> None:
        self._producers = producers
        self._set(log_start_offset, log_start_offset, log_end_offset)

    def advance_log_end(self, offset: Offset) -> None:
        """Advance the log end alone."""
        assert offset >= self.log_end_offset
        self.log_end_offset = offset

    def update_high_watermark(self, offset: Offset) -> Offset:
        """Move the high watermark to ``offset``, clamped to [log start, LEO]; return it.

        Transactions whose marker lies below it are decided, so the last stable offset may follow.
        """
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        elif offset < self.log_start_offset:
            offset = self.log_start_offset
        producers = self._producers
        if producers.has_undecided:
            producers.committed_up_to(offset)
            self._set(self.log_start_offset, offset, self.log_end_offset)
        else:
            self.high_watermark = self.last_stable_offset = offset
        return offset

    def move_log_start(self, offset: Offset) -> None:
        """Move the log start, at most to the high watermark."""
        self._set(offset, self.high_watermark, self.log_end_offset)

    def cut(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        """Take the log end, and what lies beyond it, back."""
        high_watermark = max(min(self.high_watermark, log_end_offset), log_start_offset)
        self._set(log_start_offset, high_watermark, log_end_offset)

    def take_over(self, other: LogOffsets, *, first_offset: Offset) -> None:
        """Take over the offsets of a log that is replaced by this one, which keeps nothing before
        ``first_offset``.
        """
        start = max(other.log_start_offset, first_offset)
        self._set(start, other.high_watermark, other.log_end_offset)

    def _set(
        self, log_start_offset: Offset, high_watermark: Offset, log_end_offset: Offset
    ) -> None:
        """Set all four. A wrong order is a programming error and raises AssertionError."""
        unstable = self._producers.first_unstable_offset
        last_stable_offset = high_watermark
        if unstable is not None and unstable < high_watermark:
            last_stable_offset = max(unstable, log_start_offset)
        assert 0 <= log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
        self.log_start_offset = log_start_offset
        self.last_stable_offset = last_stable_offset
        self.high_watermark = high_watermark
        self.log_end_offset = log_end_offset
