"""The controller's view of the cluster: live brokers, topics, dynamic settings. It is updated only
after the store has the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.controller.election import Electorate
from millstream.controller.entity_changes import StoredEntities
from millstream.model.broker import NO_BROKER_EPOCH, BrokerId, BrokerNode
from millstream.model.features import SUPPORTED, FinalizedFeatures, LevelRange
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId, collision_key

NOT_STORED: Final = -1
"""The version of a node that the store does not have yet: the partition epoch of a partition."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deleted topic, and the brokers that may still keep replicas of it."""

    name: str
    brokers: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic: its id, its partitions by index, and the texts of its own settings."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker. ``continuity`` is the broker epoch since which it has lost no data: an
    ISR or ELR membership from before does not count.
    """

    node: BrokerNode
    continuity: int = NO_BROKER_EPOCH
    features: Mapping[str, LevelRange] = field(default_factory=lambda: SUPPORTED)
    """The levels that it supports; empty for one from before there were features."""


@dataclass(slots=True)
class ControllerContext:
    """The state after all decisions so far."""

    controller_epoch: int = 0
    epoch_version: int = 0
    """The version of the node `/controller_epoch`: every write checks that it still holds."""
    live_brokers: list[BrokerId] = field(default_factory=list)
    """The live brokers, by id."""
    brokers: dict[BrokerId, LiveBroker] = field(default_factory=dict)
    shutting_down: set[BrokerId] = field(default_factory=set)
    """Brokers in controlled shutdown: they get no leaderships."""
    offline: dict[BrokerId, frozenset[tuple[TopicId, int]]] = field(default_factory=dict)
    """Replicas that live brokers cannot serve because their log directories have failed."""
    topics: dict[str, TopicState] = field(default_factory=dict)
    broker_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings by broker id as text; ``""`` holds those of all brokers."""
    group_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of groups by group id."""
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    """The levels in force in the whole cluster."""
    features_version: int = NOT_STORED
    """The version of the node `/feature`; NOT_STORED before the first change."""
    entities: StoredEntities | None = None
    """Rules of access, users, quotas and tokens; None until a controller has read them."""
    deleted: list[str] = field(default_factory=list)
    """Paths of the deletion records of topics whose directories may reappear, oldest first."""
    deletions: dict[TopicId, Deletion] = field(default_factory=dict)
    """Deleted topics of which a broker may still keep replicas (`topic_deletion`)."""
    _names_by_id: dict[TopicId, str] = field(default_factory=dict)
    _names_by_key: dict[str, set[str]] = field(default_factory=dict)

    def electorate(self) -> Electorate:
        """Return the brokers that may be elected now."""
        return Electorate(
            frozenset(self.brokers.keys() - self.shutting_down),
            {broker_id: broker.continuity for broker_id, broker in self.brokers.items()},
        )

    def electorate_of(self, topic_id: TopicId, index: int) -> Electorate:
        """Return the brokers that may be elected for one partition now."""
        replica = (topic_id, index)
        return self.electorate().without(
            [broker_id for broker_id, offline in self.offline.items() if replica in offline]
        )

    def put_broker(self, broker: LiveBroker) -> None:
        """Add a live broker, or replace its registration by a newer one."""
        self.brokers[broker.node.broker_id] = broker
        self.live_brokers = sorted(self.brokers)

    def remove_broker(self, broker_id: BrokerId) -> None:
        """Remove a broker that is not registered any more."""
        self.brokers.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.offline.pop(broker_id, None)
        self.live_brokers = sorted(self.brokers)

    def broker_epoch(self, broker_id: BrokerId) -> int:
        """Return the epoch of a live broker, NO_BROKER_EPOCH for any other."""
        broker = self.brokers.get(broker_id)
        return NO_BROKER_EPOCH if broker is None else broker.node.epoch

    def topic_by_id(self, topic_id: TopicId) -> TopicState | None:
        """Return the topic with this id, or None."""
        name = self._names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def put_topic(self, topic: TopicState) -> None:
        """Add a topic, or replace its state."""
        if topic.name not in self.topics:
            key = collision_key(topic.name)
            if key != topic.name or "_" in topic.name:
                self._names_by_key.setdefault(key, set()).add(topic.name)
        self.topics[topic.name] = topic
        self._names_by_id[topic.topic_id] = topic.name

    def remove_topic(self, name: str) -> None:
        """Remove a topic."""
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
