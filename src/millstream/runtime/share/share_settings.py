"""What a share group is set to, for the leaders of its share partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from millstream.config.broker import BrokerConfig
from millstream.runtime.replicas.partition import READ_UNCOMMITTED
from millstream.share.share_partition import ShareRules


class OffsetReset(Enum):
    """Where a share group begins to read a partition (``share.auto.offset.reset``)."""

    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The settings of one share group that are in force."""

    rules: ShareRules = field(default_factory=ShareRules)
    isolation: int = READ_UNCOMMITTED
    """``share.isolation.level``"""
    offset_reset: OffsetReset = OffsetReset.LATEST
    reset_duration_ms: int = 0
    """How long ago the first record is that is read, with BY_DURATION."""


def share_settings(config: BrokerConfig) -> ShareGroupSettings:
    """Return the settings of a group that has none of its own."""
    return ShareGroupSettings(
        ShareRules(
            delivery_count_limit=config.group_share_delivery_count_limit,
            max_record_locks=config.group_share_partition_max_record_locks,
            record_lock_duration_ms=config.group_share_record_lock_duration_ms,
        )
    )
