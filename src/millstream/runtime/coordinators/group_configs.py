"""The settings in force for each group: what was set for it, else the broker's.

Values are looked up at each use, for both may change while the broker runs. Kafka:
``GroupConfigManager``.
"""

from __future__ import annotations

from millstream.config.dynamic import DynamicConfig
from millstream.config.group import (
    CONSUMER_ASSIGNMENT_INTERVAL,
    CONSUMER_HEARTBEAT_INTERVAL,
    CONSUMER_SESSION_TIMEOUT,
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    effective_number,
)
from millstream.coordinator.group.settings import ConsumerTimes
from millstream.coordinator.group.share.settings import ShareTimes
from millstream.runtime.metadata.metadata_cache import MetadataCache


class GroupConfigs:
    """Answers for one broker."""

    def __init__(self, config: DynamicConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata

    def consumer_times(self, group_id: str) -> ConsumerTimes:
        """Return the times of a consumer group."""
        broker = self._config.current
        texts = self._metadata.group_configs.get(group_id, {})
        return ConsumerTimes(
            session_timeout_ms=effective_number(CONSUMER_SESSION_TIMEOUT, texts, broker),
            heartbeat_interval_ms=effective_number(CONSUMER_HEARTBEAT_INTERVAL, texts, broker),
            assignment_interval_ms=effective_number(CONSUMER_ASSIGNMENT_INTERVAL, texts, broker),
        )

    def share_times(self, group_id: str) -> ShareTimes:
        """Return the times of a share group."""
        broker = self._config.current
        texts = self._metadata.group_configs.get(group_id, {})
        return ShareTimes(
            session_timeout_ms=effective_number(SHARE_SESSION_TIMEOUT, texts, broker),
            heartbeat_interval_ms=effective_number(SHARE_HEARTBEAT_INTERVAL, texts, broker),
            assignment_interval_ms=effective_number(SHARE_ASSIGNMENT_INTERVAL, texts, broker),
        )
