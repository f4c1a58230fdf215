"""The topics of the cluster, as a group coordinator is given them.

The runtime passes a view that is always current (``TopicsImage``); ``TopicChange`` tells a shard
that it has changed. Kafka: ``CoordinatorMetadataImage``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.model.topic import TopicId

_HASH_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic: ``racks`` has the racks of each partition's replicas, and is empty if no broker
    has a rack.
    """

    name: str
    topic_id: TopicId
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()

    def racks_of(self, partition: int) -> frozenset[str]:
        """Return the racks in which a partition has replicas."""
        return self.racks[partition] if partition < len(self.racks) else frozenset()


class TopicsImage(Protocol):
    """A view of the cluster's topics."""

    def topic(self, name: str) -> TopicMetadata | None:
        """Return the topic of this name, or None."""

    def topic_by_id(self, topic_id: TopicId) -> TopicMetadata | None:
        """Return the topic with this id, or None."""

    def names(self) -> Collection[str]:
        """Return the names of all topics; a copy."""


class NoTopics:
    """A cluster without topics."""

    def topic(self, name: str) -> TopicMetadata | None:
        """Return None."""

    def topic_by_id(self, topic_id: TopicId) -> TopicMetadata | None:
        """Return None."""

    def names(self) -> Collection[str]:
        """Return nothing."""
        return ()


class FixedTopics:
    """The topics that are given to it; a twin of the runtime's view for tests and tools."""

    def __init__(self, topics: Iterable[TopicMetadata] = ()) -> None:
        self._by_name: dict[str, TopicMetadata] = {}
        self._by_id: dict[TopicId, TopicMetadata] = {}
        for topic in topics:
            self.put(topic)

    def put(self, topic: TopicMetadata) -> None:
        """Add a topic, in place of an older one of the same name."""
        self.remove(topic.name)
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Take a topic out, if it is there."""
        older = self._by_name.pop(name, None)
        if older is not None:
            del self._by_id[older.topic_id]

    def topic(self, name: str) -> TopicMetadata | None:
        """Return the topic of this name, or None."""
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: TopicId) -> TopicMetadata | None:
        """Return the topic with this id, or None."""
        return self._by_id.get(topic_id)

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return list(self._by_name)


def metadata_hash(names: Iterable[str], topics: TopicsImage) -> int:
    """Return a hash, as an int64, of what an assignment depends on: the ids, partitions and racks
    of the topics that exist; 0 if none does.

    A coordinator compares it with the one in the group's record and bumps the group epoch when they
    differ. Kafka takes another hash function (XXH3), so a group that moves between the two gets
    one bump of its epoch.
    """
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    is_empty = True
    for name in sorted(names):
        topic = topics.topic(name)
        if topic is None:
            continue
        is_empty = False
        encoded = name.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded + topic.topic_id)
        digest.update(topic.partition_count.to_bytes(4, "big"))
        for racks in topic.racks:
            text = "\0".join(sorted(racks)).encode()
            digest.update(len(text).to_bytes(4, "big") + text)
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)
