"""What a share group is set to, for the leaders of its share partitions.

A group's own settings go before the broker's (``group.share.…``). Kafka:
``ShareGroupConfigProvider``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.config.group import (
    DEAD_LETTER_COPY_RECORD,
    DEAD_LETTER_TOPIC,
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
from millstream.share.rules import ShareRules

WITH_DEAD_LETTERS: Final = 2
"""The level of the feature `share.version` from which on groups have dead-letter topics."""


@dataclass(frozen=True, slots=True)
class ShareGroupSettings:
    """The settings of one share group that are in force."""

    rules: ShareRules = field(default_factory=ShareRules)
    isolation: int = READ_UNCOMMITTED
    """``share.isolation.level``"""
    offset_reset: OffsetReset = OffsetReset.LATEST
    reset_duration_ms: int = 0
    """How long ago the first record is that is read, with BY_DURATION."""
    dead_letter_topic: str = ""
    """Where records go that are given up; empty without ``rules.has_dead_letters``."""
    dead_letters_copy_record: bool = False
    """Whether dead letters have the key and the value of their record."""


def share_settings(
    config: BrokerConfig, texts: Mapping[str, str], share_version: int
) -> ShareGroupSettings:
    """Return the settings in force of a group: ``texts`` are its own, ``share_version`` is the
    level of the feature.
    """

    def value(name: str) -> Value:
        key = GROUP_KEYS[name]
        return key.parse(texts[name]) if name in texts else key.default

    reset, duration_ms = parse_offset_reset(str(value(SHARE_AUTO_OFFSET_RESET)))
    is_committed = value(SHARE_ISOLATION_LEVEL) == "read_committed"
    dead_letter_topic = str(value(DEAD_LETTER_TOPIC)) if share_version >= WITH_DEAD_LETTERS else ""
    return ShareGroupSettings(
        ShareRules(
            delivery_count_limit=effective_number(SHARE_DELIVERY_COUNT_LIMIT, texts, config),
            max_record_locks=effective_number(SHARE_PARTITION_MAX_RECORD_LOCKS, texts, config),
            record_lock_duration_ms=effective_number(SHARE_RECORD_LOCK_DURATION, texts, config),
            renew_acknowledge=bool(value(SHARE_RENEW_ACKNOWLEDGE)),
            has_dead_letters=bool(dead_letter_topic),
        ),
        isolation=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        offset_reset=reset,
        reset_duration_ms=duration_ms,
        dead_letter_topic=dead_letter_topic,
        dead_letters_copy_record=bool(value(DEAD_LETTER_COPY_RECORD)),
    )
