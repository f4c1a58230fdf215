"""Which partition a key belongs to, as Java producers compute it.

Source: ``org.apache.kafka.common.utils.Utils.murmur2``, ``BuiltInPartitioner.partitionForKey``.
"""

from __future__ import annotations

from typing import Final

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition, 0 to ``partitions`` − 1, of a key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of ``data`` with Kafka's seed, as an unsigned number."""
    length = len(data)
    state = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        mixed = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        state = (state * _MULTIPLIER & _MASK) ^ mixed
    if whole < length:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    state = (state ^ state >> 13) * _MULTIPLIER & _MASK
    return state ^ state >> 15
