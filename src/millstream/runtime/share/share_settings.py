"""What a share group is set to, for the leaders of its share partitions.

A group's own settings go before the broker's (``group.share.…``). Kafka:
``ShareGroupConfigProvider``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.config.broker import BrokerConfig
from millstream.config.group import (
    GROUP_KEYS,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_DELIVERY_COUNT_LIMIT,
    SHARE_ISOLATION_LEVEL,
    SHARE_PARTITION_MAX_RECORD_LOCKS,
    SHARE_RECORD_LOCK_DURATION,
    SHARE_RENEW_ACKNOWLEDGE,
    effective_number,
)
from millstream.config.offset_reset import OffsetReset, parse_offset_reset
from millstream.config.value import Value
from millstream.runtime.replicas.partition import READ_COMMITTED, READ_UNCOMMITTED
from millstream.share.share_partition import ShareRules


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The settings of one share group that are in force."""

    rules: ShareRules = field(default_factory=ShareRules)
    isolation: int = READ_UNCOMMITTED
    """``share.isolation.level``"""
    offset_reset: OffsetReset = OffsetReset.LATEST
    reset_duration_ms: int = 0
    """How long ago the first record is that is read, with BY_DURATION."""


def share_settings(config: BrokerConfig, texts: Mapping[str, str]) -> ShareGroupSettings:
    """Return the settings in force of a group; ``texts`` are its own."""

    def value(name: str) -> Value:
        key = GROUP_KEYS[name]
        return key.parse(texts[name]) if name in texts else key.default

    reset, duration_ms = parse_offset_reset(str(value(SHARE_AUTO_OFFSET_RESET)))
    is_committed = value(SHARE_ISOLATION_LEVEL) == "read_committed"
    return ShareGroupSettings(
        ShareRules(
            delivery_count_limit=effective_number(SHARE_DELIVERY_COUNT_LIMIT, texts, config),
            max_record_locks=effective_number(SHARE_PARTITION_MAX_RECORD_LOCKS, texts, config),
            record_lock_duration_ms=effective_number(SHARE_RECORD_LOCK_DURATION, texts, config),
            renew_acknowledge=bool(value(SHARE_RENEW_ACKNOWLEDGE)),
        ),
        isolation=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        offset_reset=reset,
        reset_duration_ms=duration_ms,
    )
