"""Splits the chunks of a socket into frames, each in its own memory.

A frame that is complete in one chunk is a view of that chunk; one that spans several is assembled
once, and a socket may read its rest directly into its buffer. So a response may be kept for as long
as its records are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millstream.model.errors import ProtocolError
from millstream.records.crc32c import Buffer

MAX_FRAME_BYTES: Final = 1 << 30
"""A larger answer is refused."""

_SIZE_BYTES: Final = 4
_MOST_KEPT_BYTES: Final = 64 << 20


class FrameMemory:
    """The same memory for one large frame after the other, each of which ends with the next: saves
    readers of large answers an allocation for each.
    """

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = bytearray()

    def of(self, size: int) -> memoryview:
        """Return memory for a frame."""
        if size > _MOST_KEPT_BYTES:
            return memoryview(bytearray(size))
        if len(self._memory) < size:
            self._memory = bytearray(size + size // 8)
        return memoryview(self._memory)[:size]


class FrameAssembler:
    """The receiving side of one connection."""

    __slots__ = ("_filled", "_head", "_memory", "_partial")

    def __init__(self, memory: FrameMemory | None = None) -> None:
        self._head = b""
        self._memory = memory
        self._partial: memoryview | None = None
        self._filled = 0

    @property
    def room(self) -> memoryview | None:
        """The buffer for the rest of a partial frame; None between frames."""
        return None if self._partial is None else self._partial[self._filled :]

    @property
    def partial_size(self) -> int:
        """The whole size of a partial frame; 0 between frames."""
        return 0 if self._partial is None else len(self._partial)

    def fill(self, count: int) -> Iterator[memoryview]:
        """Yield the frame that ``count`` bytes complete, which were written into :attr:`room`."""
        partial = self._partial
        assert partial is not None
        self._filled += count
        if self._filled == len(partial):
            self._partial = None
            yield partial.toreadonly()

    def take(self, data: Buffer) -> Iterator[memoryview]:
        """Yield the frames that ``data`` completes; ProtocolError for an impossible size."""
        view = memoryview(data).toreadonly()
        if self._partial is not None:
            partial = self._partial
            count = min(len(view), len(partial) - self._filled)
            partial[self._filled : self._filled + count] = view[:count]
            yield from self.fill(count)
            view = view[count:]
            if self._partial is not None:
                return
        if self._head:
            view = memoryview(self._head + bytes(view))
            self._head = b""
        while len(view) >= _SIZE_BYTES:
            size = int.from_bytes(view[:_SIZE_BYTES], "big", signed=True)
            if not 0 < size <= MAX_FRAME_BYTES:
                raise ProtocolError(f"an answer of {size} bytes")
            rest = view[_SIZE_BYTES:]
            if len(rest) < size:
                # Memory is only used as it is filled: untouched pages cost nothing.
                memory = self._memory
                self._partial = memoryview(bytearray(size)) if memory is None else memory.of(size)
                self._partial[: len(rest)] = rest
                self._filled = len(rest)
                return
            view = rest[size:]
            yield rest[:size]
        self._head = bytes(view)
