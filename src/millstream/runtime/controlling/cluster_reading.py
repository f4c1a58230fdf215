"""Reads a cluster's metadata from its store: every node by the path that it must have.

A walk over the tree would ask for the children of each partition; what they are called is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.controller import paths, payloads
from millstream.model.metadata_store import (
    Create,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
)

_PARENTS = (
    paths.BROKER_IDS,
    paths.TOPICS,
    paths.TOPIC_CONFIGS,
    paths.BROKER_CONFIGS,
    paths.GROUP_CONFIGS,
    paths.DELETED_TOPICS,
)


async def read_cluster(store: MetadataStore) -> dict[str, Node]:
    """Return every node that a controller's context is made from, by path."""
    nodes: dict[str, Node] = {}
    single = await read_nodes(store, (paths.CLUSTER_ID, paths.CONTROLLER_EPOCH, paths.FEATURES))
    nodes.update(single)
    listings = [(parent, store.children(parent)) for parent in _PARENTS]
    wanted = []
    for parent, listing in listings:
        try:
            wanted += [f"{parent}/{name}" for name in await listing]
        except NoNodeError:
            continue
    nodes.update(await read_nodes(store, wanted))
    states = []
    for path, node in nodes.items():
        if path.startswith(paths.TOPICS + "/"):
            name = path.removeprefix(paths.TOPICS + "/")
            count = len(payloads.read_topic(path, node.data).replicas)
            states += [paths.state(name, index) for index in range(count)]
    nodes.update(await read_nodes(store, states))
    return nodes


async def read_nodes(store: MetadataStore, wanted: Iterable[str]) -> Mapping[str, Node]:
    """Return those of some nodes that are there."""
    paths_wanted = list(wanted)
    return await store.get_all(paths_wanted) if paths_wanted else {}


async def prepare_store(store: MetadataStore, cluster_id: str) -> str:
    """Make the nodes that are always there; return the cluster's id: ``cluster_id`` when it is new.

    Several brokers may do so at once.
    """
    fixed = [Create(path, b"") for path in paths.PERSISTENT]
    fixed.append(Create(paths.CONTROLLER_EPOCH, b"0"))
    fixed.append(Create(paths.CLUSTER_ID, payloads.cluster_id(cluster_id)))
    present = await read_nodes(store, (each.path for each in fixed))
    for operation in fixed:
        if operation.path in present:
            continue
        try:
            await store.multi([operation])
        except NodeExistsError:
            continue
    node = await store.get(paths.CLUSTER_ID)
    return payloads.read_cluster_id(paths.CLUSTER_ID, node.data)
