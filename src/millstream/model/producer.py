"""Producer ids, epochs and the arithmetic of sequence numbers (KIP-98)."""

from __future__ import annotations

from typing import Final

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
_SEQUENCES: Final = 2**31


def next_sequence(sequence: int, count: int = 1) -> int:
    """Return the sequence ``count`` records on; after 2³¹−1 comes 0."""
    return (sequence + count) % _SEQUENCES
