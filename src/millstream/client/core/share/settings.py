"""Settings of a share consumer under Kafka's names (Kafka: ``ConsumerConfig`` of a share consumer).

Heartbeats, session time-out, isolation level and the reset of offsets are settings of the group,
kept by the brokers, and so are not here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.client.core.setting_types import (
    INT_MAX,
    boolean,
    choice,
    integer,
    milliseconds,
    optional_text,
    serializer,
    setting,
)
from millstream.client.core.settings import ObservedSettings
from millstream.model.errors import ConfigError

IMPLICIT: Final = "implicit"
EXPLICIT: Final = "explicit"
BATCH_OPTIMIZED: Final = "batch_optimized"
RECORD_LIMIT: Final = "record_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConsumerSettings(ObservedSettings):
    """Settings of a share consumer; names ending in ``_ms`` are milliseconds.

    ``share_acknowledgement_mode``: with ``implicit`` the records of a poll are accepted by the next
    poll or commit; with ``explicit`` each record is acknowledged before the next poll.
    ``share_acquire_mode``: with ``batch_optimized`` whole batches are acquired, perhaps more than
    ``max_poll_records``; with ``record_limit`` never more than that (brokers of Kafka 4.2 and
    later).
    """

    receive_buffer_bytes: int = setting(integer(-1), -1)

    group_id: str | None = setting(optional_text, None)
    share_acknowledgement_mode: str = setting(choice(IMPLICIT, EXPLICIT), IMPLICIT)
    share_acquire_mode: str = setting(choice(BATCH_OPTIMIZED, RECORD_LIMIT), BATCH_OPTIMIZED)
    max_poll_interval_ms: int = setting(integer(1), 300_000)
    max_poll_records: int = setting(integer(1), 500)
    fetch_min_bytes: int = setting(integer(), 1)
    fetch_max_bytes: int = setting(integer(), 52_428_800)
    fetch_max_wait_ms: int = setting(integer(), 500)
    check_crcs: bool = setting(boolean, True)
    default_api_timeout_ms: float = setting(milliseconds(most=INT_MAX), 60_000)
    allow_auto_create_topics: bool = setting(boolean, True)
    key_deserializer: object = setting(serializer, None)
    value_deserializer: object = setting(serializer, None)

    @property
    def is_explicit(self) -> bool:
        """True if the application acknowledges each record."""
        return self.share_acknowledgement_mode == EXPLICIT

    @property
    def limits_records(self) -> bool:
        """True if at most ``max_poll_records`` are acquired at a time."""
        return self.share_acquire_mode == RECORD_LIMIT


def check_settings(settings: ShareConsumerSettings) -> None:
    """Raise ConfigError without a group."""
    if not settings.group_id:
        raise ConfigError("a share consumer needs a group.id")
