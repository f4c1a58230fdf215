"""Cuts a stream of bytes into frames: an int32 size, then as many bytes.

The owner receives straight into the reader's buffer and takes the whole frames out::

    count = socket.recv_into(reader.writable())
    reader.received(count)
    while (frame := reader.next_frame()) is not None:
        ...

A frame is a view of the buffer, so it is valid until the next ``writable()``. The buffer grows by
doubling, and only when it is full: a peer that announces two GiB and sends nothing costs nothing.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Final

from millstream.model.errors import ProtocolError

INITIAL_BYTES: Final = 16 * 1024
MIN_FREE_BYTES: Final = 4 * 1024
_SIZE: Final = Format(">i")


class FrameReader:
    """The receive buffer of one connection.

    Between calls ``_start <= _end <= len(_buffer)``: what was received and not yet taken lies
    between the first two.
    """

    __slots__ = ("_buffer", "_end", "_start", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def writable(self) -> memoryview:
        """Return free space to receive into, at least ``MIN_FREE_BYTES``; ends earlier frames."""
        pending = self._end - self._start
        if pending == 0:
            self._start = self._end = 0
            if len(self._buffer) > INITIAL_BYTES:
                self._resize(INITIAL_BYTES)
        elif len(self._buffer) - pending < MIN_FREE_BYTES:
            self._resize(2 * len(self._buffer))
        elif self._start:
            self._buffer[:pending] = self._view[self._start : self._end]
            self._start, self._end = 0, pending
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Say that ``count`` bytes of the space given by ``writable()`` were filled."""
        self._end += count
        assert self._end <= len(self._buffer)

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size, or None until more bytes come.

        ProtocolError when the size is not positive or above ``max_frame_bytes``.
        """
        available = self._end - self._start
        if available < 4:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        if size <= 0 or size > self.max_frame_bytes:
            raise ProtocolError(f"a frame of {size} bytes; allowed are 1 to {self.max_frame_bytes}")
        if available < size + 4:
            return None
        begin = self._start + 4
        self._start = begin + size
        return self._view[begin : self._start]

    @property
    def frame_pending(self) -> int:
        """Bytes of an incomplete frame that wait for the rest; 0 between frames."""
        return self._end - self._start

    def _resize(self, size: int) -> None:
        pending = self._end - self._start
        buffer = bytearray(size)
        buffer[:pending] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._end = 0, pending
