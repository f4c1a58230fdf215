"""Reads a cluster's metadata from its store: every node by the path that it must have.

A walk over the tree would ask for the children of each partition; what they are called is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from millstream.controller import entity_nodes, paths, payloads
from millstream.controller.entity_changes import StoredEntities
from millstream.model.metadata_store import (
    Create,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
)

MAX_READ: Final = 2_000
"""How many nodes are asked for at once, where there may be very many."""

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


async def read_entities(store: MetadataStore) -> StoredEntities:
    """Return all entities; PayloadError names a node that cannot be read."""
    entities = StoredEntities()
    found = await _children(store, list(entity_nodes.LISTED))
    users: list[str] = []
    for parent, names in found.items():
        if parent == entity_nodes.USERS:
            users += names
        await _add_nodes(store, entities, [f"{parent}/{name}" for name in names])
    for chosen in _slices(users):
        below = [entity_nodes.clients_of(user) for user in chosen]
        for parent, names in (await _children(store, below)).items():
            entities.paths.add(parent)
            await _add_nodes(store, entities, [f"{parent}/{name}" for name in names])
    return entities


async def _add_nodes(store: MetadataStore, entities: StoredEntities, wanted: list[str]) -> None:
    for chosen in _slices(wanted):
        for path, node in (await read_nodes(store, chosen)).items():
            entities.add_node(path, node)


def _slices(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield names in parts, so that other work of the loop comes between."""
    for start in range(0, len(names), MAX_READ):
        yield names[start : start + MAX_READ]


async def _children(store: MetadataStore, parents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names below those of some nodes that are there."""
    listings = [(parent, store.children(parent)) for parent in parents]
    found = {}
    for parent, listing in listings:
        try:
            found[parent] = await listing
        except NoNodeError:
            continue
    return found


async def read_nodes(store: MetadataStore, wanted: Iterable[str]) -> Mapping[str, Node]:
    """Return those of some nodes that are there."""
    paths_wanted = list(wanted)
    return await store.get_all(paths_wanted) if paths_wanted else {}


async def prepare_store(store: MetadataStore, cluster_id: str) -> str:
    """Make the nodes that are always there; return the cluster's id: ``cluster_id`` when it is new.

    Several brokers may do so at once.
    """
    fixed = [Create(path, b"") for path in (*paths.PERSISTENT, *entity_nodes.PERSISTENT)]
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
