"""Variable-length integers and the other small encodings that several tables share.

An unsigned varint has seven bits in each byte, the lowest first; the top bit says that more
follow. Five bytes hold 32 bits, so the fifth may only carry the upper four.
"""

from __future__ import annotations

from typing import Final

from millstream.model.errors import ProtocolError

_MAX_UVARINT: Final = 0xFFFFFFFF


def encode_uvarint(value: int) -> bytes:
    """Return the unsigned varint of a number from 0 to 2³²−1."""
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    """Return (value, position behind it); ProtocolError when it is longer than 32 bits.

    IndexError where the buffer ends inside the number: decoders turn it into a ProtocolError once
    for the whole message.
    """
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _MAX_UVARINT:
                break
            return value, position
    raise ProtocolError("a varint is longer than 32 bits")


_SMALL: Final = tuple(bytes([value]) for value in range(0x80))
