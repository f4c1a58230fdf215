"""The CRC-32C of a part of some data, from those of two of its beginnings.

A checksum with so many zero bytes behind its data is a linear map of the checksum, and the bytes
that really follow add their own. So the checksum of any part costs a few look-ups, however long it
is, once those of the beginnings are known (zlib: ``crc32_combine``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_BYTE: Final = 0xFF


def of_rest(whole: int, beginning: int, rest_bytes: int) -> int:
    """Return the checksum of the last ``rest_bytes`` bytes of some data.

    ``whole`` is the checksum of all of it, ``beginning`` of what stands before them.
    """
    return whole ^ _with_zeros(beginning, rest_bytes)


def _with_zeros(crc: int, count: int) -> int:
    power = 0
    while count:
        if count & 1:
            crc = _mapped(_zeros_map(power), crc)
        count >>= 1
        power += 1
    return crc


def _mapped(tables: Sequence[Sequence[int]], crc: int) -> int:
    return (
        tables[0][crc & _BYTE]
        ^ tables[1][crc >> 8 & _BYTE]
        ^ tables[2][crc >> 16 & _BYTE]
        ^ tables[3][crc >> 24]
    )


@cache
def _zeros_map(power: int) -> Sequence[Sequence[int]]:
    """Return the map of 2 ** ``power`` zero bytes: a table for each byte of a checksum."""
    if not power:
        return [[_with_a_zero(byte << 8 * place) for byte in range(256)] for place in range(4)]
    half = _zeros_map(power - 1)
    return [[_mapped(half, each) for each in table] for table in half]


def _with_a_zero(crc: int) -> int:
    for _ in range(8):
        crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc
