"""How many bytes become readable when the high watermark of a led partition moves.

A parked fetch waits for ``min_bytes`` more than it found (``waiters.FetchWaiter``), so the leader
remembers the size of each batch between its append and its commit. While the high watermark stands
still (acks=1 below ``min.insync.replicas``) that could be any number of batches: from
``max_batches`` on they are not remembered, and until the high watermark has passed them every move
counts as more than anybody asks for. A fetch that is woken by it looks again and waits on.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from millstream.model.offsets import NO_OFFSET, Offset

UNKNOWN_SIZE: Final = 1 << 40
"""More bytes than a fetch asks for: of what was written before an election the size is unknown."""

MAX_BATCHES: Final = 1024
"""Batches remembered for each partition; one takes some 116 bytes."""


class ReadableBytes:
    """The sizes of the batches of one partition that are written and not committed."""

    __slots__ = ("_batches", "_max_batches", "_unknown_up_to")

    def __init__(self, max_batches: int = MAX_BATCHES) -> None:
        self._batches: deque[tuple[Offset, int]] = deque()
        self._max_batches = max_batches
        self._unknown_up_to: Offset = NO_OFFSET
        """The end of the last batch that was not remembered, -1 once it is committed."""

    def __len__(self) -> int:
        return len(self._batches)

    def wrote(self, end_offset: Offset, size: int) -> None:
        """Remember a batch that ends before ``end_offset`` and has ``size`` bytes."""
        if self._unknown_up_to >= 0 or len(self._batches) >= self._max_batches:
            self._unknown_up_to = end_offset
        else:
            self._batches.append((end_offset, size))

    def committed(self, offset: Offset) -> int:
        """Forget what lies below the high watermark ``offset``; return its bytes, or
        ``UNKNOWN_SIZE``.
        """
        batches = self._batches
        readable = last = 0
        while batches and batches[0][0] <= offset:
            last, size = batches.popleft()
            readable += size
        if self._unknown_up_to >= 0 and not batches and last != offset:
            readable = UNKNOWN_SIZE
            if offset >= self._unknown_up_to:
                self._unknown_up_to = NO_OFFSET
        return readable or UNKNOWN_SIZE
