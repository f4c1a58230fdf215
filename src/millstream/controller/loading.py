"""Reads the whole metadata tree into a controller's context."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.controller import paths, payloads
from millstream.controller.context import ControllerContext, TopicState
from millstream.model.metadata_store import Node
from millstream.model.topic import (
    TopicId,
    topic_id_from_text,
)


def load_context(nodes: Mapping[str, Node]) -> ControllerContext:
    """Return what the tree holds; PayloadError names a node that cannot be read."""
    context = ControllerContext()
    epoch = nodes.get(paths.CONTROLLER_EPOCH)
    if epoch is not None:
        context.controller_epoch = payloads.read_controller_epoch(
            paths.CONTROLLER_EPOCH, epoch.data
        )
        context.epoch_version = epoch.version
    prefix = paths.BROKER_CONFIGS + "/"
    for path in _below(nodes, prefix):
        name = path.removeprefix(prefix)
        texts = payloads.read_config(path, nodes[path].data)
        context.broker_configs["" if name == paths.ALL_BROKERS else name] = texts
    topics = [
        _load_topic(nodes, path)
        for path in _below(nodes, paths.TOPICS + "/")
        if path.count("/") == 3
    ]
    # The store answers by name; creation order is what listings showed before the restart.
    for _, topic in sorted(topics, key=lambda pair: pair[0]):
        context.put_topic(topic)
    return context


def _below(nodes: Mapping[str, Node], prefix: str) -> list[str]:
    return [path for path in nodes if path.startswith(prefix)]


def _load_topic(nodes: Mapping[str, Node], path: str) -> tuple[int, TopicState]:
    name = path.removeprefix(paths.TOPICS + "/")
    topic_id, assignment = payloads.read_topic(path, nodes[path].data)
    partitions = []
    for index, replicas in enumerate(assignment):
        state_path = paths.state(name, index)
        node = nodes.get(state_path)
        if node is None:
            raise payloads.PayloadError(f"{state_path}: missing")
        partitions.append(
            payloads.read_state(state_path, node.data, replicas=replicas, version=node.version)
        )
    config_path = paths.topic_config(name)
    config = nodes.get(config_path)
    overrides = payloads.read_config(config_path, config.data) if config is not None else {}
    return nodes[path].creation_id, TopicState(name, topic_id, tuple(partitions), overrides)


def deleted_topics(nodes: Mapping[str, Node]) -> dict[TopicId, str]:
    """Return the topics whose deletion is remembered: path by topic id."""
    prefix = paths.DELETED_TOPICS + "/"
    return {topic_id_from_text(path.removeprefix(prefix)): path for path in _below(nodes, prefix)}


def stored_cluster_id(nodes: Mapping[str, Node]) -> str | None:
    """Return the cluster's id; None before the first start."""
    node = nodes.get(paths.CLUSTER_ID)
    return None if node is None else payloads.read_cluster_id(paths.CLUSTER_ID, node.data)
