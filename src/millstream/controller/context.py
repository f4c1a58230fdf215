"""What the controller knows: live brokers, topics, dynamic settings. It changes only after the
store has the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.model.broker import BrokerId
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId, collision_key


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic: its id, its partitions by index, and the texts of its own settings."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    overrides: Mapping[str, str]


@dataclass(slots=True)
class ControllerContext:
    """Everything decided so far."""

    controller_epoch: int = 0
    epoch_version: int = 0
    """The version of the node `/controller_epoch`: every write checks that it still holds."""
    live_brokers: list[BrokerId] = field(default_factory=list)
    topics: dict[str, TopicState] = field(default_factory=dict)
    broker_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by broker id as text; ``""`` holds those of all brokers."""
    deleted: list[str] = field(default_factory=list)
    """Paths that remember deleted topics whose directories may come back, oldest first."""
    _names_by_id: dict[TopicId, str] = field(default_factory=dict)
    _names_by_key: dict[str, set[str]] = field(default_factory=dict)

    def topic_by_id(self, topic_id: TopicId) -> TopicState | None:
        """Return the topic with this id, or None."""
        name = self._names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def put_topic(self, topic: TopicState) -> None:
        """Put in a new topic, or a newer state of one."""
        if topic.name not in self.topics:
            key = collision_key(topic.name)
            if key != topic.name or "_" in topic.name:
                self._names_by_key.setdefault(key, set()).add(topic.name)
        self.topics[topic.name] = topic
        self._names_by_id[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        """Take out a topic."""
        topic = self.topics.pop(name)
        del self._names_by_id[topic.topic_id]
        key = collision_key(name)
        colliding = self._names_by_key.get(key)
        if colliding is not None:
            colliding.discard(name)
            if not colliding:
                del self._names_by_key[key]

    def colliding_topic(self, name: str) -> str | None:
        """Return a topic whose metric names would be those of ``name``: equal but for dots and
        underscores. The topic itself counts as one.
        """
        if "." not in name and "_" not in name:
            return None
        return min(self._names_by_key.get(collision_key(name), ()), default=None)
