"""Topics that are deleted but not yet everywhere: which brokers may still keep replicas.

::

    deleted --each broker that kept replicas acknowledges--> forgotten

The topic's nodes go first, in one step with the note that it is deleted, so its name is free at
once. The note names the brokers that kept replicas. A live one is told by push, until it
acknowledges; a dead one reads the note when it comes back, before it opens its logs. Since notes go
by topic id, nobody takes a new topic of the same name for the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millstream.controller import paths, payloads
from millstream.controller.context import ControllerContext, Deletion, TopicState
from millstream.model.broker import BrokerId
from millstream.model.metadata_store import Delete, Node, Operation
from millstream.model.topic import TopicId, topic_id_from_text, topic_id_to_text


def keepers(topic: TopicState) -> frozenset[BrokerId]:
    """Return the brokers that keep replicas of a topic, those in motion too."""
    return frozenset(each for state in topic.partitions for each in state.replicas)


def remember(context: ControllerContext, topic: TopicState) -> None:
    """Take note of a deletion that the store has."""
    context.deletions[topic.topic_id] = Deletion(topic.name, keepers(topic))


def load_deletions(nodes: Mapping[str, Node]) -> dict[TopicId, Deletion]:
    """Return the deletions that the store remembers."""
    prefix = paths.DELETED_TOPICS + "/"
    found = {}
    for path, node in nodes.items():
        if path.startswith(prefix):
            name, brokers = payloads.read_deleted_topic(path, node.data)
            found[topic_id_from_text(path.removeprefix(prefix))] = Deletion(name, brokers)
    return found


def acknowledge(context: ControllerContext, topic_id: TopicId, broker_id: BrokerId) -> bool:
    """Take note that a broker keeps no replica of a deleted topic; True when no broker does and
    the store may forget it.
    """
    deletion = context.deletions.get(topic_id)
    if deletion is None or broker_id not in deletion.brokers:
        return False
    left = deletion.brokers - {broker_id}
    context.deletions[topic_id] = Deletion(deletion.name, left)
    return not left


def forgetting(context: ControllerContext, topic_id: TopicId) -> Iterator[Operation]:
    """Yield what makes the store forget a deletion."""
    yield Delete(paths.deleted_topic(topic_id_to_text(topic_id)))
