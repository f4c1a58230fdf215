"""Zig-zag variable-length integers, as records use them (Kafka: ``ByteUtils``).

Seven bits a byte, lowest first, the top bit set on every byte but the last. Zig-zag maps 0, -1,
1, -2 ... to 0, 1, 2, 3 ..., so small numbers of either sign are short.
"""

from __future__ import annotations

from functools import lru_cache

from millstream.model.errors import CorruptLogError


@lru_cache(maxsize=4096)
def encode_varint(value: int) -> bytes:
    """Return ``value`` (32 or 64 bits) as a zig-zag varint of 1 to 10 bytes."""
    remaining = (value << 1) ^ (value >> 63)
    if remaining < 0x80:
        return bytes((remaining,))
    out = bytearray()
    while remaining >= 0x80:
        out.append(remaining & 0x7F | 0x80)
        remaining >>= 7
    out.append(remaining)
    return bytes(out)


def decode_varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a 32-bit value and the position after it.

    Raises CorruptLogError on more than five bytes, IndexError at the end of ``data``. Bits above
    the 32nd in a fifth byte are dropped, as Kafka drops them.
    """
    value = data[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        value = value & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    return _decode_long(data, position, 32)


def decode_varlong(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return a 64-bit value, of up to ten bytes; otherwise as :func:`decode_varint`."""
    value = data[position]
    if value < 0x80:
        return (value >> 1) ^ -(value & 1), position + 1
    return _decode_long(data, position, 64)


def _decode_long(data: bytes | memoryview, position: int, bits: int) -> tuple[int, int]:
    start = position
    value = 0
    shift = 0
    while shift < bits:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= (1 << bits) - 1
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise CorruptLogError(f"a varint at byte {start} has more than {shift // 7} bytes")
