"""Deleted topics whose replicas may still exist on some brokers.

::

    deleted --each broker that hosts replicas acknowledges--> record removed

The topic's nodes are deleted in one step with the creation of its deletion record, so its name is
free at once. The record has the brokers that host replicas. A live broker gets a push, repeated
until it acknowledges; a stopped broker reads the record when it starts, before it opens its logs.
Records are keyed by topic id, so a new topic of the same name is not confused with the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millstream.controller import paths, payloads
from millstream.controller.context import ControllerContext, Deletion, TopicState
from millstream.model.broker import BrokerId
from millstream.model.metadata_store import Delete, Node, Operation
from millstream.model.topic import TopicId, topic_id_from_text, topic_id_to_text


def brokers_with_replicas(topic: TopicState) -> frozenset[BrokerId]:
    """Return the brokers that host replicas of a topic, including those of a reassignment."""
    return frozenset(each for state in topic.partitions for each in state.replicas)


def remember(context: ControllerContext, topic: TopicState) -> None:
    """Add a deletion that the store has."""
    context.deletions[topic.topic_id] = Deletion(topic.name, brokers_with_replicas(topic))


def load_deletions(nodes: Mapping[str, Node]) -> dict[TopicId, Deletion]:
    """Return the deletions that the store has records of."""
    prefix = paths.DELETED_TOPICS + "/"
    found = {}
    for path, node in nodes.items():
        if path.startswith(prefix):
            name, brokers = payloads.read_deleted_topic(path, node.data)
            found[topic_id_from_text(path.removeprefix(prefix))] = Deletion(name, brokers)
    return found


def acknowledge(context: ControllerContext, topic_id: TopicId, broker_id: BrokerId) -> bool:
    """Record that a broker has no replica of a deleted topic any more; return True if no broker
    has, so that the record may be removed.
    """
    deletion = context.deletions.get(topic_id)
    if deletion is None or broker_id not in deletion.brokers:
        return False
    left = deletion.brokers - {broker_id}
    context.deletions[topic_id] = Deletion(deletion.name, left)
    return not left


def forgetting(context: ControllerContext, topic_id: TopicId) -> Iterator[Operation]:
    """Yield the store operations that remove a deletion record."""
    yield Delete(paths.deleted_topic(topic_id_to_text(topic_id)))
