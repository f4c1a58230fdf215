"""Variable-length integers and tag buffers.

An unsigned varint has seven bits in each byte, the lowest first; the top bit says that more
follow. Five bytes hold 32 bits, so the fifth may only carry four.

A tag buffer ends every struct of a flexible version (KIP-482)::

    count varint | count times: tag varint, size varint, size bytes
"""

from __future__ import annotations

from typing import Final

from millstream.model.errors import ProtocolError
from millstream.protocol.fields import Buffer


def encode_uvarint(value: int) -> bytes:
    """Return the unsigned varint of a number from 0 to 2³²−1."""
    if value < 0x80:
        return _SMALL[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position behind it); ProtocolError when it is longer than 32 bits.

    IndexError where the buffer ends inside the number: the callers turn it into a ProtocolError
    once for a whole message.
    """
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    second = buffer[position + 1]
    if second < 0x80:
        return first & 0x7F | second << 7, position + 2
    third = buffer[position + 2]
    value = first & 0x7F | (second & 0x7F) << 7 | (third & 0x7F) << 14
    if third < 0x80:
        return value, position + 3
    fourth = buffer[position + 3]
    value |= (fourth & 0x7F) << 21
    if fourth < 0x80:
        return value, position + 4
    fifth = buffer[position + 4]
    if fifth > 0x0F:
        raise ProtocolError("a varint is longer than 32 bits")
    return value | fifth << 28, position + 5


def skip_tags(buffer: Buffer, position: int, limit: int, budget: int) -> tuple[int, int]:
    """Skip a tag buffer of unknown fields; return (position, budget).

    Each field costs one of ``budget``. ProtocolError when there are more, or when one claims to
    go beyond ``limit``.
    """
    count, position = decode_uvarint(buffer, position)
    budget -= count
    if budget < 0:
        raise ProtocolError(f"{count} tagged fields, more than a message may hold")
    for _ in range(count):
        _, position = decode_uvarint(buffer, position)
        size, position = decode_uvarint(buffer, position)
        position += size
        if position > limit:
            raise ProtocolError(f"a tagged field claims {size} bytes, more than there are")
    return position, budget


_SMALL: Final = tuple(bytes([value]) for value in range(0x80))
