"""The topics of the metadata cache, as group coordinators see them.

Racks are those of the live brokers that have replicas of a partition. Kafka:
``KRaftCoordinatorMetadataImage``.
"""

from __future__ import annotations

from collections.abc import Collection

from millstream.coordinator.group.modern.topics import TopicMetadata
from millstream.model.topic import TopicId
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage


class TopicsView:
    """A view that is always current."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def topic(self, name: str) -> TopicMetadata | None:
        """Return the topic of this name, or None."""
        return self._metadata(self._cache.topic(name))

    def topic_by_id(self, topic_id: TopicId) -> TopicMetadata | None:
        """Return the topic with this id, or None."""
        return self._metadata(self._cache.topic_by_id(topic_id))

    def names(self) -> Collection[str]:
        """Return the names of all topics; a copy, for a worker goes through it."""
        return [image.name for image in self._cache.topics()]

    def _metadata(self, image: TopicImage | None) -> TopicMetadata | None:
        if image is None:
            return None
        racks = {
            broker_id: node.rack for broker_id, node in self._cache.brokers.items() if node.rack
        }
        by_partition: tuple[frozenset[str], ...] = ()
        if racks:
            by_partition = tuple(
                frozenset(racks[each] for each in partition.replicas if each in racks)
                for partition in image.partitions
            )
        return TopicMetadata(image.name, image.topic_id, len(image.partitions), by_partition)
