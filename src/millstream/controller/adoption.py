"""Adopts logs that are in a log directory but not in the metadata store.

They were written by Apache Kafka, or by a broker whose metadata file was lost. They become topics
under the ids that their `partition.metadata` names, so that they are served as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.config.group import GROUP_KEYS
from millstream.controller.context import ControllerContext, TopicState
from millstream.controller.election import new_partition
from millstream.controller.internal_topics import wanted_topic
from millstream.model.broker import BrokerId
from millstream.model.errors import ConfigError, KafkaError
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch
from millstream.model.topic import TopicId, TopicPartition, validate_topic_name

log = logging.getLogger(__name__)

NOT_TOPICS: Final = frozenset({"__cluster_metadata"})
"""Directories of Apache Kafka that look like partitions and hold a controller's own log."""

MAX_ADOPTED_INDEX: Final = 99_999
"""A directory with a higher partition index is a stray, not a topic of a million partitions."""


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log on disk: the topic id in its directory, if any, and its latest leader epoch.

    ``configs`` and ``partition_count`` are the topic's, if the writer of the log recorded them:
    Apache Kafka does so in its metadata log.
    """

    topic_id: TopicId | None
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    configs: Mapping[str, str] = field(default_factory=dict)
    partition_count: int = 0


@dataclass(slots=True)
class Adoption:
    """The decision about the logs that were found.

    ``deleted`` belong to deleted topics: remove them. ``strays`` contradict the metadata (another
    topic id, an invalid name): rename them to ``-stray``, keeping the data.
    """

    topics: list[tuple[TopicState, int]] = field(default_factory=list)
    """Topics that are new or have more partitions, and how many they had."""
    deleted: list[TopicPartition] = field(default_factory=list)
    strays: list[TopicPartition] = field(default_factory=list)


def plan_adoption(
    context: ControllerContext,
    found: Mapping[TopicPartition, FoundLog],
    *,
    deleted: Mapping[TopicId, str],
    new_topic_id: Callable[[], TopicId],
    broker_id: BrokerId,
) -> Adoption:
    """Decide about every log that was found on disk.

    Partitions that are missing below the highest one found, or that the recorded partition count
    includes, are created empty. A topic that exists already keeps its settings.
    """
    adoption = Adoption()
    by_topic: dict[str, dict[int, FoundLog]] = {}
    for topic_partition, log in sorted(found.items()):
        if log.topic_id in deleted:
            adoption.deleted.append(topic_partition)
        elif topic_partition.topic not in NOT_TOPICS:
            by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = log
    for name, logs in by_topic.items():
        topic = context.topics.get(name)
        if topic is None:
            configs = next((log.configs for log in logs.values() if log.configs), {})
            topic = TopicState(name, _id_of(logs) or new_topic_id(), (), dict(configs))
        kept = {index: log for index, log in logs.items() if _belongs(log, index, topic)}
        adoption.strays += [TopicPartition(name, index) for index in logs if index not in kept]
        if kept:
            _grow(adoption, topic, kept, broker_id, context.controller_epoch)
    return adoption


def cautious_settings(name: str, config: BrokerConfig) -> Mapping[str, str]:
    """Return the settings for a topic of which only logs are left: internal topics get their known
    settings, other topics settings under which nothing is deleted.
    """
    known = {key: text for key, text in wanted_topic(name, config).configs.items() if text}
    return known or {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


def adopted_group_configs(
    found: Mapping[str, Mapping[str, str]],
) -> dict[str, Mapping[str, str]]:
    """Return the settings of groups that Apache Kafka recorded, but for those that mean nothing
    here. A value outside the broker's bounds is kept: it counts as the nearest bound.
    """
    adopted: dict[str, Mapping[str, str]] = {}
    for group_id, texts in found.items():
        known = {name: text for name, text in texts.items() if _is_group_config(name, text)}
        if known:
            adopted[group_id] = known
        if len(known) < len(texts):
            unknown = ", ".join(sorted(texts.keys() - known.keys()))
            log.warning("group %s: settings that mean nothing here: %s", group_id, unknown)
    return adopted


def _is_group_config(name: str, text: str) -> bool:
    try:
        return name in GROUP_KEYS and GROUP_KEYS[name].parse(text) is not None
    except ConfigError:
        return False


def _id_of(logs: Mapping[int, FoundLog]) -> TopicId | None:
    return next((log.topic_id for log in logs.values() if log.topic_id is not None), None)


def _belongs(log: FoundLog, index: int, topic: TopicState) -> bool:
    try:
        validate_topic_name(topic.name)
    except KafkaError:
        return False
    return index <= MAX_ADOPTED_INDEX and log.topic_id in (None, topic.topic_id)


def _grow(
    adoption: Adoption,
    topic: TopicState,
    logs: Mapping[int, FoundLog],
    broker_id: BrokerId,
    controller_epoch: int,
) -> None:
    count = len(topic.partitions)
    me = (broker_id,)
    added = []
    known = min(max(log.partition_count for log in logs.values()), MAX_ADOPTED_INDEX + 1)
    end = max(max(logs) + 1, known if count == 0 else 0)
    for index in range(count, end):
        log_epoch = logs[index].leader_epoch if index in logs else NO_LEADER_EPOCH
        added.append(new_partition(me, me, controller_epoch, leader_epoch=log_epoch + 1))
    if added:
        adoption.topics.append((replace(topic, partitions=(*topic.partitions, *added)), count))


def plan_arrival(
    context: ControllerContext,
    found: Mapping[TopicPartition, FoundLog],
    *,
    broker_id: BrokerId,
) -> Adoption:
    """Decide about every log that was found on the disks of a broker that joins a cluster.

    Replicas that the cluster has reassigned or deleted meanwhile are deleted; logs of unknown
    topics are renamed to ``-stray``, because they may be the only copy of another cluster's data.
    """
    adoption = Adoption()
    for topic_partition, log in sorted(found.items()):
        topic = context.topics.get(topic_partition.topic)
        index = topic_partition.partition
        if log.topic_id in context.deletions:
            adoption.deleted.append(topic_partition)
        elif topic is None or index >= len(topic.partitions):
            if topic_partition.topic not in NOT_TOPICS:
                adoption.strays.append(topic_partition)
        elif log.topic_id is not None and log.topic_id != topic.topic_id:
            adoption.strays.append(topic_partition)
        elif broker_id not in topic.partitions[index].replicas:
            adoption.deleted.append(topic_partition)
    return adoption
