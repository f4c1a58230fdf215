"""Messages between a test, the host of its brokers and the brokers: a size, then a marshalled dict.

All three are one installation run by one interpreter, so the interpreter's own format serves; the
sockets are inherited and no other process can reach them.
"""

from __future__ import annotations

import marshal
import struct
from typing import Any, Final, TypeAlias

Frame: TypeAlias = dict[str, Any]
"""``id`` and ``do`` ask for something; ``id`` with ``ok`` or ``error`` answers; ``event`` tells."""

BETWEEN_BROKERS: Final = "INTERNAL"
"""The listener of brokers among themselves, whose requests are left alone."""

READ_BYTES: Final = 1 << 18
_SIZE: Final = struct.Struct(">I")


def pack(frame: Frame) -> bytes:
    """Return a frame as it is sent."""
    body = marshal.dumps(frame)
    return _SIZE.pack(len(body)) + body


class Unpacker:
    """Takes bytes as they arrive and returns the frames that are whole."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def take(self, received: bytes) -> list[Frame]:
        """Return the frames that ``received`` completes."""
        self._bytes += received
        frames: list[Frame] = []
        position = 0
        while len(self._bytes) - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._bytes, position)
            end = position + _SIZE.size + size
            if len(self._bytes) < end:
                break
            frames.append(marshal.loads(self._bytes[position + _SIZE.size : end]))
            position = end
        del self._bytes[:position]
        return frames
