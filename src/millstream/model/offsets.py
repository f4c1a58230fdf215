"""Offsets and leader epochs, with the values that mean "none"."""

from __future__ import annotations

from typing import Final, TypeAlias

Offset: TypeAlias = int
"""The logical position of a record in a partition: 0, 1, 2, …"""

LeaderEpoch: TypeAlias = int
"""The count of the partition's leader changes; 32 bits, never goes back."""

NO_OFFSET: Final = -1
NO_LEADER_EPOCH: Final = -1
NO_TIMESTAMP: Final = -1
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
