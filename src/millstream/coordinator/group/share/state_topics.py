"""Which share partitions of a group have state at their share coordinators.

::

    subscribed ──▶ initializing ──▶ initialized ──offsets deleted──▶ deleting ──▶ gone

Only initialized share partitions are assigned to members. Kafka:
``ShareGroupStatePartitionMetadataInfo``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.model.topic import TopicId


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    """Partitions of one topic."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[TopicId, TopicPartitions]
Partitions = Mapping[TopicId, frozenset[int]]


@dataclass(frozen=True, slots=True)
class StateTopics:
    """The share partitions of one group by the state of their state."""

    initializing: Topics = field(default_factory=dict)
    initialized: Topics = field(default_factory=dict)
    deleting: Mapping[TopicId, str] = field(default_factory=dict)
    """Names of topics by id: all of their share partitions."""

    @property
    def is_empty(self) -> bool:
        """True if nothing is known of any share partition."""
        return not (self.initializing or self.initialized or self.deleting)

    def initialized_partitions(self) -> Partitions:
        """Return the partitions that may be assigned."""
        return {topic_id: each.partitions for topic_id, each in self.initialized.items()}

    def begin(self, added: Topics) -> StateTopics:
        """Let partitions be initializing."""
        return StateTopics(
            united(self.initializing, added),
            self.initialized,
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in added},
        )

    def finish(self, done: Topics) -> StateTopics:
        """Let partitions be initialized."""
        return StateTopics(
            _without(self.initializing, done), united(self.initialized, done), self.deleting
        )

    def give_up(self, failed: Topics) -> StateTopics:
        """Let partitions not be initializing any more: they are begun again later."""
        return replace(self, initializing=_without(self.initializing, failed))

    def delete(self, topics: Mapping[TopicId, str]) -> StateTopics:
        """Let the initialized partitions of topics be deleting."""
        return StateTopics(
            self.initializing, _dropped(self.initialized, topics), {**self.deleting, **topics}
        )

    def deleted(self, topic_ids: Iterable[TopicId]) -> StateTopics:
        """Forget topics that were deleting."""
        gone = set(topic_ids)
        kept = {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone}
        return replace(self, deleting=kept)

    def without_topic(self, topic_id: TopicId) -> StateTopics:
        """Forget a topic that does not exist any more."""
        return StateTopics(
            _dropped(self.initializing, (topic_id,)),
            _dropped(self.initialized, (topic_id,)),
            {each: name for each, name in self.deleting.items() if each != topic_id},
        )


def missing_partitions(names: Iterable[str], known: Topics, topics: TopicsImage) -> Topics:
    """Return the partitions of existing topics that are not known yet."""
    missing: dict[TopicId, TopicPartitions] = {}
    for name in names:
        topic = topics.topic(name)
        if topic is None:
            continue
        seen = known.get(topic.topic_id)
        absent = frozenset(range(topic.partition_count))
        if seen is not None:
            absent -= seen.partitions
        if absent:
            missing[topic.topic_id] = TopicPartitions(name, absent)
    return missing


def united(one: Topics, other: Topics) -> Topics:
    """Return the partitions of both."""
    result = dict(one)
    for topic_id, each in other.items():
        known = result.get(topic_id)
        partitions = each.partitions if known is None else known.partitions | each.partitions
        result[topic_id] = TopicPartitions(each.name, partitions)
    return result


def _without(topics: Topics, gone: Topics) -> Topics:
    result: dict[TopicId, TopicPartitions] = {}
    for topic_id, each in topics.items():
        left = each.partitions
        if topic_id in gone:
            left -= gone[topic_id].partitions
        if left:
            result[topic_id] = TopicPartitions(each.name, left)
    return result


def _dropped(topics: Topics, gone: Iterable[TopicId]) -> Topics:
    ids = set(gone)
    return {topic_id: each for topic_id, each in topics.items() if topic_id not in ids}
