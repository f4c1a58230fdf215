"""The logs that a start finds on its disks, and what Apache Kafka's metadata log, where there is
one beside them, says of their topics, groups, users and rules.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig, stored_topic_config
from millstream.controller.adoption import Adoption, FoundLog, cautious_settings
from millstream.model.clock import Clock
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.metadata.metadata_cache import MetadataCache
from millstream.storage.files import FileSystem
from millstream.storage.kafka_metadata_logs import KafkaMetadataLogs
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

log = logging.getLogger(__name__)


class FoundLogs:
    """What the log directories of one broker hold, for a metadata store that may know less."""

    def __init__(
        self,
        config: BrokerConfig,
        dynamic: DynamicConfig,
        *,
        clock: Clock,
        file_system: FileSystem,
        log_manager: LogManager,
        metadata: MetadataCache,
    ) -> None:
        self._config = config
        self._clock = clock
        self._dynamic = dynamic
        self._log_manager = log_manager
        self._metadata = metadata
        self._kafka_metadata = KafkaMetadataLogs(file_system, self._kafka_directories)

    def all(self) -> dict[TopicPartition, FoundLog]:
        """Return every log on disk, with its topic's settings from Apache Kafka's metadata log, if
        any.
        """
        return {each.topic_partition: self._found(each) for each in self._log_manager.logs()}

    def _found(self, each: Log) -> FoundLog:
        name, index = each.topic_partition.topic, each.topic_partition.partition
        if self._metadata.topic(name) is not None:
            return FoundLog(each.topic_id, each.latest_epoch)
        topic = self._kafka_metadata.find_topic(name, each.topic_id)
        if topic is None:
            configs = cautious_settings(name, self._dynamic.current)
            return FoundLog(each.topic_id, each.latest_epoch, configs)
        return FoundLog(
            each.topic_id or topic.topic_id,
            max(each.latest_epoch, topic.leader_epochs.get(index, NO_LEADER_EPOCH)),
            topic.configs,
            topic.partition_count,
        )

    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of groups in Apache Kafka's metadata log, if there is one."""
        return self._kafka_metadata.group_configs()

    def entities(self) -> Mapping[EntityKind, Mapping[str, EntityValue]]:
        """Return rules of access, quotas, SCRAM users and delegation tokens in Apache Kafka's
        metadata log, if there is one. Tokens are those of `delegation.token.secret.key`: without it
        nobody could use them.
        """
        found = self._kafka_metadata.entities()
        tokens = found.get(EntityKind.DELEGATION_TOKEN)
        if tokens and not self._config.delegation_token_secret_key:
            log.warning(
                "%d delegation tokens of Apache Kafka are not taken over: there is no "
                "delegation.token.secret.key, which has to be that of before",
                len(tokens),
            )
            return {kind: each for kind, each in found.items() if each is not tokens}
        return found

    def config_of(self, topic_partition: TopicPartition, topic_id: TopicId | None) -> TopicConfig:
        """Return the settings with which a log is opened."""
        image = self._metadata.topic(topic_partition.topic)
        if image is not None and topic_id in (None, image.topic_id):
            return image.config
        defaults = self._dynamic.current.topic_defaults
        topic = self._kafka_metadata.find_topic(topic_partition.topic, topic_id)
        # For a log of an unknown topic, gaps are assumed to come from compaction, not from loss.
        overrides = {"cleanup.policy": "compact,delete"} if topic is None else topic.configs
        # Invalid settings are reported where the topic is applied.
        return stored_topic_config(overrides, defaults, lambda _: None)

    def settle(self, adoption: Adoption) -> None:
        """Log what was adopted from the directories, and rename logs of unknown topics to
        ``-stray``.
        """
        if adoption.topics:
            log.info(
                "adopted from the log directories: %s",
                ", ".join(f"{t.name} ({len(t.partitions)} partitions)" for t, _ in adoption.topics),
            )
        unknown = [
            topic.name
            for topic, count in adoption.topics
            if not count and self._kafka_metadata.find_topic(topic.name, topic.topic_id) is None
        ]
        if unknown:
            log.warning(
                "the settings of %s are unknown: nothing of them is deleted until you change them "
                "(retention.ms and retention.bytes are -1)",
                ", ".join(unknown),
            )
        now_ms = self._clock.now_ms()
        for topic_partition in adoption.deleted:
            self._log_manager.delete(topic_partition, now_ms=now_ms)
        for topic_partition in adoption.strays:
            log.warning("%s belongs to no known topic: renamed to -stray", topic_partition)
            self._log_manager.mark_stray(topic_partition)

    def _kafka_directories(self) -> list[str]:
        """Return the directories that may contain a metadata log of Apache Kafka."""
        apart = self._config.metadata_log_dir
        return [*self._log_manager.directories, *([os.path.abspath(apart)] if apart else ())]
