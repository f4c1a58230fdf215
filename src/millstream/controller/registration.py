"""What a standalone broker writes when it starts: its registration, itself as the controller,
adopted topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from millstream.controller import entity_nodes, paths, payloads
from millstream.controller.adoption import Adoption, FoundLog
from millstream.controller.context import ControllerContext, TopicState
from millstream.controller.election import after_restart
from millstream.controller.topic_changes import creation, growth
from millstream.model.broker import BrokerNode
from millstream.model.metadata_store import Create, Delete, Node, Operation, SetData
from millstream.model.offsets import NO_LEADER_EPOCH
from millstream.model.topic import TopicId, TopicPartition


def registration(
    nodes: Mapping[str, Node], broker: BrokerNode, *, cluster_id: str, now_ms: int
) -> Iterator[Operation]:
    """Yield the operations that register a standalone broker, also as the controller.

    ``nodes`` is the tree as it was read: nodes that exist are not created again.
    """
    for path in (*paths.PERSISTENT, *entity_nodes.PERSISTENT):
        if path not in nodes:
            yield Create(path, b"")
    if paths.CLUSTER_ID not in nodes:
        yield Create(paths.CLUSTER_ID, payloads.cluster_id(cluster_id))
    epoch = nodes.get(paths.CONTROLLER_EPOCH)
    if epoch is None:
        yield Create(paths.CONTROLLER_EPOCH, b"1")
    else:
        yield SetData(paths.CONTROLLER_EPOCH, b"%d" % (int(epoch.data) + 1), epoch.version)
    yield Create(paths.CONTROLLER, payloads.controller(broker.broker_id, now_ms), ephemeral=True)
    yield Create(paths.broker(broker.broker_id), payloads.broker(broker, now_ms), ephemeral=True)


def states_after_restart(
    context: ControllerContext,
    found: Mapping[TopicPartition, FoundLog],
    *,
    clean_shutdown: bool,
) -> list[TopicState]:
    """Return the topics in which some partition's leader or leader epoch has changed."""
    changed = []
    for topic in context.topics.values():
        states = tuple(
            after_restart(
                state,
                context.live_brokers,
                controller_epoch=context.controller_epoch,
                lost_records=not clean_shutdown,
                log_epoch=_log_epoch(found, topic.name, index),
            )
            for index, state in enumerate(topic.partitions)
        )
        if any(new is not old for new, old in zip(states, topic.partitions, strict=True)):
            changed.append(replace(topic, partitions=states))
    return changed


def _log_epoch(found: Mapping[TopicPartition, FoundLog], topic: str, index: int) -> int:
    log = found.get(TopicPartition(topic, index))
    return NO_LEADER_EPOCH if log is None else log.leader_epoch


def state_changes(before: TopicState, after: TopicState) -> Iterator[Operation]:
    """Yield the store operations of changed partition states."""
    for index, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=False)):
        if new is not old:
            path = paths.state(after.name, index)
            yield SetData(path, payloads.state(new), old.partition_epoch)


def adoption_changes(
    adoption: Adoption, deleted: Mapping[TopicId, str], found: Mapping[TopicPartition, FoundLog]
) -> Iterator[Operation]:
    """Yield the store operations of adopted logs, and those that remove the deletion records of
    topics whose directories are gone.
    """
    for topic, count in adoption.topics:
        yield from creation(topic) if count == 0 else growth(topic, count)
    remembered = still_remembered(deleted, found)
    for path in deleted.values():
        if path not in remembered:
            yield Delete(path)


def group_config_creations(configs: Mapping[str, Mapping[str, str]]) -> Iterator[Operation]:
    """Yield the store operations of groups' settings that were adopted."""
    for group_id, texts in configs.items():
        yield Create(paths.group_config(group_id), payloads.config(texts))


def still_remembered(
    deleted: Mapping[TopicId, str], found: Mapping[TopicPartition, FoundLog]
) -> set[str]:
    """Return the deletion records of topics whose directories still exist."""
    still_there = {log.topic_id for log in found.values()}
    return {path for topic_id, path in deleted.items() if topic_id in still_there}
