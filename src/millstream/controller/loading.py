"""Reads the whole metadata tree into a controller's context."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from millstream.controller import paths, payloads
from millstream.controller.context import NOT_STORED, ControllerContext, LiveBroker, TopicState
from millstream.controller.feature_changes import feature_epoch
from millstream.model.broker import BrokerId
from millstream.model.features import FinalizedFeatures
from millstream.model.leadership import UNKNOWN_STATE
from millstream.model.metadata_store import Node
from millstream.model.topic import (
    TopicId,
    topic_id_from_text,
)

log = logging.getLogger(__name__)


def load_context(nodes: Mapping[str, Node], *, piecemeal: bool = False) -> ControllerContext:
    """Return the context that the tree describes; PayloadError names a node that cannot be read.

    In a store that is written ``piecemeal`` a partition may have no state yet: its topic was being
    created when a controller failed. Its partition epoch is NOT_STORED.
    """
    context = ControllerContext()
    epoch = nodes.get(paths.CONTROLLER_EPOCH)
    if epoch is not None:
        context.controller_epoch = payloads.read_controller_epoch(
            paths.CONTROLLER_EPOCH, epoch.data
        )
        context.epoch_version = epoch.version
    features = nodes.get(paths.FEATURES)
    if features is not None:
        levels = payloads.read_features(paths.FEATURES, features.data)
        context.features = FinalizedFeatures(levels, feature_epoch(features.version))
        context.features_version = features.version
    prefix = paths.BROKER_CONFIGS + "/"
    for path in _below(nodes, prefix):
        name = path.removeprefix(prefix)
        texts = payloads.read_config(path, nodes[path].data)
        context.broker_configs["" if name == paths.ALL_BROKERS else name] = texts
    for path in _below(nodes, paths.GROUP_CONFIGS + "/"):
        texts = payloads.read_config(path, nodes[path].data)
        context.group_configs[paths.group_of(path)] = texts
    topics = [
        _load_topic(nodes, path, piecemeal)
        for path in _below(nodes, paths.TOPICS + "/")
        if path.count("/") == 3
    ]
    # The store lists by name; sort by creation so that listings keep their order after a restart.
    for _, topic in sorted(topics, key=lambda pair: pair[0]):
        context.put_topic(topic)
    return context


def _below(nodes: Mapping[str, Node], prefix: str) -> list[str]:
    return [path for path in nodes if path.startswith(prefix)]


def _load_topic(nodes: Mapping[str, Node], path: str, piecemeal: bool) -> tuple[int, TopicState]:
    name = path.removeprefix(paths.TOPICS + "/")
    assignment = payloads.read_topic(path, nodes[path].data)
    partitions = []
    for index, replicas in enumerate(assignment.replicas):
        adding = assignment.adding.get(index, ())
        removing = assignment.removing.get(index, ())
        state_path = paths.state(name, index)
        node = nodes.get(state_path)
        if node is None:
            if not piecemeal:
                raise payloads.PayloadError(f"{state_path}: missing")
            partitions.append(replace(UNKNOWN_STATE, replicas=replicas, partition_epoch=NOT_STORED))
            continue
        partitions.append(
            payloads.read_state(
                state_path,
                node.data,
                replicas=replicas,
                version=node.version,
                adding=adding,
                removing=removing,
            )
        )
    config_path = paths.topic_config(name)
    config = nodes.get(config_path)
    overrides = payloads.read_config(config_path, config.data) if config is not None else {}
    topic = TopicState(name, assignment.topic_id, tuple(partitions), overrides)
    return nodes[path].creation_id, topic


def load_brokers(nodes: Mapping[str, Node]) -> list[LiveBroker]:
    """Return the brokers that are registered; one whose node cannot be read is left out."""
    prefix = paths.BROKER_IDS + "/"
    brokers = []
    for path in _below(nodes, prefix):
        name = path.removeprefix(prefix)
        if not name.isdecimal():
            continue
        try:
            brokers.append(read_live_broker(BrokerId(int(name)), nodes[path]))
        except payloads.PayloadError as error:
            log.warning("a registration that cannot be read: %s", error)
    return brokers


def read_live_broker(broker_id: BrokerId, node: Node) -> LiveBroker:
    """Return a broker as its registration describes it."""
    found, registration = payloads.read_broker(
        paths.broker(broker_id), node.data, broker_id=broker_id, epoch=node.creation_id
    )
    continuity = registration.continuity
    if continuity is None:
        continuity = node.creation_id
    return LiveBroker(found, continuity, registration.features)


def deleted_topics(nodes: Mapping[str, Node]) -> dict[TopicId, str]:
    """Return the paths of the deletion records, by topic id."""
    prefix = paths.DELETED_TOPICS + "/"
    return {topic_id_from_text(path.removeprefix(prefix)): path for path in _below(nodes, prefix)}


def stored_cluster_id(nodes: Mapping[str, Node]) -> str | None:
    """Return the cluster's id; None before the first start."""
    node = nodes.get(paths.CLUSTER_ID)
    return None if node is None else payloads.read_cluster_id(paths.CLUSTER_ID, node.data)
