"""What a share group is set to, for the leaders of its share partitions.

A group's own settings go before the broker's (``group.share.…``); a number that has left the
broker's bounds since it was set counts as the nearest bound. Kafka: ``ShareGroupConfigProvider``,
``ShareGroupAutoOffsetResetStrategy``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.runtime.replicas.partition import READ_COMMITTED, READ_UNCOMMITTED
from millstream.share.share_partition import ShareRules

DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
ISOLATION_LEVEL: Final = "share.isolation.level"
RENEW_ACKNOWLEDGE: Final = "share.renew.acknowledge.enable"

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,9}))?S)?)?", re.IGNORECASE
)
"""An ISO-8601 duration of days and less, as Java's ``Duration.parse`` reads it."""


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


def share_settings(config: BrokerConfig, texts: Mapping[str, str]) -> ShareGroupSettings:
    """Return the settings in force of a group; ``texts`` are its own."""

    def number(name: str, default: int, lowest: int, highest: int) -> int:
        return max(lowest, min(int(texts[name]), highest)) if name in texts else default

    reset, duration_ms = parse_offset_reset(texts.get(AUTO_OFFSET_RESET, "latest"))
    is_committed = texts.get(ISOLATION_LEVEL, "").lower() == "read_committed"
    return ShareGroupSettings(
        ShareRules(
            delivery_count_limit=number(
                DELIVERY_COUNT_LIMIT,
                config.group_share_delivery_count_limit,
                config.group_share_min_delivery_count_limit,
                config.group_share_max_delivery_count_limit,
            ),
            max_record_locks=number(
                MAX_RECORD_LOCKS,
                config.group_share_partition_max_record_locks,
                config.group_share_min_partition_max_record_locks,
                config.group_share_max_partition_max_record_locks,
            ),
            record_lock_duration_ms=number(
                RECORD_LOCK_DURATION,
                config.group_share_record_lock_duration_ms,
                config.group_share_min_record_lock_duration_ms,
                config.group_share_max_record_lock_duration_ms,
            ),
            renew_acknowledge=texts.get(RENEW_ACKNOWLEDGE, "true").lower() == "true",
        ),
        isolation=READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        offset_reset=reset,
        reset_duration_ms=duration_ms,
    )


def parse_offset_reset(text: str) -> tuple[OffsetReset, int]:
    """Return where to begin, and for ``by_duration:PnDTnHnMn.nS`` how long ago in milliseconds;
    ValueError for anything else.
    """
    name, colon, duration = text.lower().partition(":")
    reset = OffsetReset(name)
    if reset is not OffsetReset.BY_DURATION:
        if colon:
            raise ValueError(f"{name} has no duration: {text!r}")
        return reset, 0
    found = _DURATION.fullmatch(duration)
    if found is None or not any(found.groups()) or duration.endswith("t"):
        raise ValueError(f"not a duration: {text!r}")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    fraction_ms = int((found.group(5) or "").ljust(3, "0")[:3])
    return reset, (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + fraction_ms
