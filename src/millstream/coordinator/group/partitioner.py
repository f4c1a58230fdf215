"""Maps a group to its partition of ``__consumer_offsets`` (Kafka: ``Utils.abs(hashCode) % n``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_INT_BITS: Final = 0xFFFF_FFFF
_SIGN: Final = 0x8000_0000
_MIN_VALUE: Final = -0x8000_0000


_LONGEST_KEPT: Final = 256
"""Characters of an id whose hash is kept."""


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 units, wrapped to a signed 32-bit number."""
    return _kept_hash(text) if len(text) <= _LONGEST_KEPT else _hash(text)


def _hash(text: str) -> int:
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (31 * value + unit) & _INT_BITS
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        for index in range(0, len(encoded), 2):
            value = (31 * value + (encoded[index] << 8 | encoded[index + 1])) & _INT_BITS
    return value - (1 << 32) if value & _SIGN else value


_kept_hash = lru_cache(maxsize=4096)(_hash)


def group_partition(group_id: str, partitions: int) -> int:
    """Return the partition of a group among ``partitions``."""
    if len(group_id) <= _LONGEST_KEPT:
        return _kept_partition(group_id, partitions)
    return _partition(group_id, partitions)


def _partition(group_id: str, partitions: int) -> int:
    value = java_hash(group_id)
    # Java's abs(MIN_VALUE) is negative; Kafka takes 0 instead.
    return (0 if value == _MIN_VALUE else abs(value)) % partitions


# Every request of a transaction or a group asks for that of its id.
_kept_partition = lru_cache(maxsize=4096)(_partition)
