"""What a group coordinator is told by the broker's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_GROUPS_PER_SHARD: Final = 100_000
"""Groups that one partition of ``__consumer_offsets`` takes; a guard for memory, not in Kafka."""

MAX_MEMBERS: Final = 100_000
"""Members, joined or about to, of one group whatever ``group.max.size`` says; not in Kafka."""

BATCH_OVERHEAD_BYTES: Final = 128
"""More than what stands around key and value in a batch of one record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's settings, by Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    """``group.min.session.timeout.ms``"""
    max_session_timeout_ms: int = 1_800_000
    """``group.max.session.timeout.ms``"""
    initial_rebalance_delay_ms: int = 3_000
    """``group.initial.rebalance.delay.ms``"""
    new_member_join_timeout_ms: int = 300_000
    """How long a member that never got its id may wait in JoinGroup; fixed in Kafka."""
    max_size: int = 2**31 - 1
    """``group.max.size``"""
    offset_metadata_max_bytes: int = 4_096
    """``offset.metadata.max.bytes``, counted in UTF-16 units as Kafka counts it."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """``offsets.retention.minutes`` in milliseconds"""
    max_batch_bytes: int = 1_048_588
    """``max.message.bytes`` of ``__consumer_offsets``: what one record of a group may take."""

    @property
    def max_record_bytes(self) -> int:
        """Return what key and value of one record may take."""
        return self.max_batch_bytes - BATCH_OVERHEAD_BYTES

    @property
    def member_limit(self) -> int:
        """Return how many members a group may have."""
        return min(self.max_size, MAX_MEMBERS)
