"""Cuts a stream of bytes into frames: an int32 size, then as many bytes.

The owner receives straight into the reader's buffer and takes the whole frames out::

    count = socket.recv_into(reader.writable())
    reader.received(count)
    while (frame := reader.next_frame()) is not None:
        ...

A frame is a view of the buffer and valid until the next ``writable()``. The buffer::

    0          start              end               capacity
    | taken     | received         | free            |

It doubles when it is full of bytes that are needed, never because a size announces many: a peer
that promises two GiB and sends nothing costs nothing. Bytes are moved to the front only when the
frame they begin does not fit behind them, so of a stream of 1-MB frames little is copied. A buffer
that has become too big is halved after a while, and a very big one is given back at once.
"""

from __future__ import annotations

from struct import Struct as Format
from typing import Final

from millstream.model.errors import ProtocolError

INITIAL_BYTES: Final = 16 * 1024
MIN_FREE_BYTES: Final = 4 * 1024
"""The least space that ``writable()`` gives."""

FULL_RECEIVE_BYTES: Final = 256 * 1024
"""Up to here the buffer also grows when small frames come faster than it takes them."""

KEPT_BYTES: Final = 4 * 1024 * 1024
"""An empty buffer above this size is given back at once."""

QUIET_RECEIVES: Final = 32
"""An empty buffer is halved after so many receives in a row that filled less than a quarter."""

_SIZE: Final = Format(">i")
_TLS_HANDSHAKE: Final = b"\x16\x03"
"""How a client of TLS begins: a record of type handshake, of SSL 3.x."""
_HTTP: Final = frozenset({b"GET ", b"HEAD", b"POST", b"PUT ", b"OPTI", b"PRI "})


class FrameReader:
    """The receive buffer of one connection."""

    __slots__ = ("_buffer", "_end", "_quiet", "_start", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        """The largest size accepted; may be raised later, as after authentication."""
        self._buffer = bytearray(INITIAL_BYTES)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._quiet = 0

    @property
    def capacity(self) -> int:
        """Bytes of memory that the buffer holds."""
        return len(self._buffer)

    @property
    def frame_pending(self) -> int:
        """Bytes received and not yet taken: once ``next_frame()`` has returned None, the part of
        an incomplete frame, and 0 between frames.
        """
        return self._end - self._start

    def writable(self) -> memoryview:
        """Return the free space to receive into, ``MIN_FREE_BYTES`` or more; ends earlier frames.

        Asking again without ``received()`` in between gives the same space.
        """
        capacity = len(self._buffer)
        pending = self._end - self._start
        if pending == 0:
            self._fit(capacity)
            self._start = self._end = 0
        elif capacity - self._end < self._wanted(pending):
            full = self._end == capacity < FULL_RECEIVE_BYTES
            if full or capacity - pending < MIN_FREE_BYTES:
                self._resize(2 * capacity)
            elif self._start:
                self._view[:pending] = self._view[self._start : self._end]
                self._start = 0
                self._end = pending
        return self._view[self._end :]

    def received(self, count: int) -> None:
        """Say that ``count`` bytes of the space given by ``writable()`` were filled."""
        self._end += count
        assert self._end <= len(self._buffer), "more bytes received than there was space"

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size, or None until more bytes come.

        ProtocolError when the size is not positive or above ``max_frame_bytes``.
        """
        begin = self._start + 4
        if begin > self._end:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, begin - 4)
        if size <= 0 or size > self.max_frame_bytes:
            raise ProtocolError(self._refusal(size))
        end = begin + size
        if end > self._end:
            return None
        self._start = end
        return self._view[begin:end]

    def _refusal(self, size: int) -> str:
        """Word what a frame of this size means: a client that speaks something else begins with
        what is a huge size here.
        """
        first = _SIZE.pack(size)
        if first[:2] == _TLS_HANDSHAKE:
            return "the peer speaks TLS, which this listener does not"
        if first in _HTTP:
            return "the peer speaks HTTP, and not Kafka's protocol"
        return f"a frame of {size} bytes; allowed are 1 to {self.max_frame_bytes}"

    def shrink(self) -> None:
        """Give an empty buffer's memory back, down to ``INITIAL_BYTES``."""
        if self._start == self._end and len(self._buffer) > INITIAL_BYTES:
            self._resize(INITIAL_BYTES)

    def _wanted(self, pending: int) -> int:
        """Return how much space the frame that has begun still needs, as far as that is known."""
        if pending < 4:
            return MIN_FREE_BYTES
        (size,) = _SIZE.unpack_from(self._buffer, self._start)
        return max(MIN_FREE_BYTES, int(size) + 4 - pending)

    def _fit(self, capacity: int) -> None:
        """Adapt an empty buffer to what the last receives have filled."""
        if capacity > KEPT_BYTES:
            self._resize(KEPT_BYTES)
        elif self._end == capacity and capacity < FULL_RECEIVE_BYTES:
            self._resize(2 * capacity)
        elif capacity > INITIAL_BYTES and self._end <= capacity // 4:
            self._quiet += 1
            if self._quiet == QUIET_RECEIVES:
                self._resize(capacity // 2)
        else:
            self._quiet = 0

    def _resize(self, capacity: int) -> None:
        """Move to a buffer of another size; views of the old one stay as they are."""
        pending = self._end - self._start
        buffer = bytearray(capacity)
        buffer[:pending] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = 0
        self._end = pending
        self._quiet = 0
