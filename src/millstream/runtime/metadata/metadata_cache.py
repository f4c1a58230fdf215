"""What this broker knows of the cluster: topics, partitions, brokers.

`broker_metadata` writes it; handlers read it and never write it. A topic's image is replaced whole,
so a reader that holds one sees one moment of the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.features import FinalizedFeatures
from millstream.model.leadership import PartitionState
from millstream.model.topic import INTERNAL_TOPICS, TopicId
from millstream.runtime.metadata.entity_table import EntityTable


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic at one moment: its id, the state of each partition by index, its settings."""

    name: str
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    config: TopicConfig

    @property
    def is_internal(self) -> bool:
        """True for the coordinators' own topics."""
        return self.name in INTERNAL_TOPICS


class MetadataCache:
    """The newest image of every topic, by name and by id, and the live brokers.

    ``on_features_changed`` is called with the finalized features once they are shown.
    """

    def __init__(
        self,
        cluster_id: str,
        *,
        on_features_changed: Callable[[FinalizedFeatures], None] | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self._on_features_changed = on_features_changed
        self.controller_id = BrokerId(-1)
        self.features = FinalizedFeatures()
        """What all brokers of the cluster have switched on."""
        self.group_configs: Mapping[str, Mapping[str, str]] = {}
        """The settings of groups that have any, by group id."""
        self.entities = EntityTable()
        """Rules of access, users, quotas, delegation tokens."""
        self.brokers: dict[BrokerId, BrokerNode] = {}
        self.missing: set[BrokerId] = set()
        """Live brokers whose address refuses connections just now (`failure_detector`)."""
        self._by_name: dict[str, TopicImage] = {}
        self._by_id: dict[TopicId, TopicImage] = {}

    def set_features(self, features: FinalizedFeatures) -> None:
        """Show which levels of features are finalized."""
        self.features = features
        if self._on_features_changed is not None:
            self._on_features_changed(features)

    def is_reachable(self, broker_id: BrokerId) -> bool:
        """True for a live broker to which a client may be sent."""
        return broker_id in self.brokers and broker_id not in self.missing

    def endpoint(self, broker_id: BrokerId, listener: str) -> Endpoint | None:
        """Return where a broker listens on a listener; None when it is not alive."""
        node = self.brokers.get(broker_id)
        return None if node is None else node.endpoint(listener)

    def seen_from(self, listener: str) -> dict[BrokerId, BrokerNode]:
        """Return the live brokers that a client of this listener may be told of: a broker without
        it has addresses that are meant for others (Kafka: ``getAliveBrokerNodes``).
        """
        return {
            broker_id: node for broker_id, node in self.brokers.items() if node.listens(listener)
        }

    def topic(self, name: str) -> TopicImage | None:
        """Return the topic of this name, or None."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicImage | None:
        """Return the topic with this id, or None."""
        return self._by_id.get(topic_id)

    def topics(self) -> Iterable[TopicImage]:
        """Return every topic, in order of creation."""
        return self._by_name.values()

    def update(self, image: TopicImage) -> None:
        """Put in a topic, in place of an older image of the same name."""
        older = self._by_name.get(image.name)
        if older is not None and older.topic_id != image.topic_id:
            del self._by_id[older.topic_id]
        self._by_name[image.name] = image
        self._by_id[image.topic_id] = image

    def remove(self, name: str) -> TopicImage | None:
        """Take out a topic and return what it was."""
        image = self._by_name.pop(name, None)
        if image is not None:
            del self._by_id[image.topic_id]
        return image
