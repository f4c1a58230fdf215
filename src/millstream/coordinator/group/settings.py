"""The settings of a group coordinator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Guards for memory that Kafka does not have.

MAX_GROUPS_PER_SHARD: Final = 20_000
"""The largest number of groups in one partition of ``__consumer_offsets``."""

MAX_SESSIONS_PER_SHARD: Final = 200_000
"""The largest number of members, joined or pending, in one partition of ``__consumer_offsets``."""

MAX_METADATA_RECORDS: Final = 4
"""The limit of the members' metadata for all protocols, in records of the largest size; the
metadata for the selected protocol must fit into a single record.
"""

BATCH_OVERHEAD_BYTES: Final = 128
"""More than the overhead of a batch of one record besides its key and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's settings with Kafka's defaults."""

    min_session_timeout_ms: int = 6_000
    """``group.min.session.timeout.ms``"""
    max_session_timeout_ms: int = 1_800_000
    """``group.max.session.timeout.ms``"""
    initial_rebalance_delay_ms: int = 3_000
    """``group.initial.rebalance.delay.ms``"""
    new_member_join_timeout_ms: int = 300_000
    """The session timeout of a new member while it waits in JoinGroup; fixed in Kafka."""
    max_size: int = 2**31 - 1
    """``group.max.size``"""
    offset_metadata_max_bytes: int = 4_096
    """``offset.metadata.max.bytes``, counted in UTF-16 units as Kafka counts it."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    """``offsets.retention.minutes`` in milliseconds"""
    max_batch_bytes: int = 1_048_588
    """``max.message.bytes`` of ``__consumer_offsets``: the limit of one record of a group."""

    @property
    def max_record_bytes(self) -> int:
        """Return the largest size of key and value of one record."""
        return self.max_batch_bytes - BATCH_OVERHEAD_BYTES

    @property
    def max_metadata_bytes(self) -> int:
        """Return the largest size of the members' metadata for all protocols."""
        return MAX_METADATA_RECORDS * self.max_batch_bytes
