"""The settings of a group coordinator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from millstream.coordinator.group.share.settings import ShareGroupSettings

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


class MigrationPolicy(Enum):
    """Which groups change their protocol while they have members (Kafka:
    ``ConsumerGroupMigrationPolicy``). The value is the one of ``group.consumer.migration.policy``.
    """

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group may become a classic group."""
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerTimes:
    """What may be set for each consumer group (resource type GROUP), in milliseconds."""

    session_timeout_ms: int = 45_000
    """``consumer.session.timeout.ms``, ``group.consumer.session.timeout.ms``"""
    heartbeat_interval_ms: int = 5_000
    """``consumer.heartbeat.interval.ms``, ``group.consumer.heartbeat.interval.ms``"""
    assignment_interval_ms: int = 1_000
    """``consumer.assignment.interval.ms``, ``group.consumer.assignment.interval.ms``"""


def _default_times(group_id: str) -> ConsumerTimes:
    return ConsumerTimes()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """Kafka's settings of consumer groups with Kafka's defaults."""

    times_of: Callable[[str], ConsumerTimes] = _default_times
    """The times of a group by its id; they may change at any moment."""
    max_size: int = 2**31 - 1
    """``group.consumer.max.size``"""
    assignors: tuple[str, ...] = ("uniform", "range")
    """``group.consumer.assignors``; the first is the default"""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """``group.consumer.migration.policy``"""
    regex_refresh_interval_ms: int = 600_000
    """``group.consumer.regex.refresh.interval.ms``"""


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
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    """The settings of consumer groups."""
    share: ShareGroupSettings = field(default_factory=ShareGroupSettings)
    """The settings of share groups."""
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
