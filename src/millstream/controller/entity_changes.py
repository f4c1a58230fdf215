"""The stored entities as the controller knows them, and the store operations of their changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.controller import entity_nodes
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.entity_keys import CLIENTS
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.metadata_store import Create, Delete, Node, Operation, SetData

MAX_ENTITIES: Final = 200_000
"""How many entities of one kind there may be: every broker keeps them all."""

MAX_ENTITY_BYTES: Final = 250_000
"""The size of one entity, key and value: it is one node of the store, and part of one push."""

MAX_TOTAL_BYTES: Final = 256 * 1024 * 1024
"""The size of all entities together, keys and values, in characters."""

_NO_USER_DATA: Final = entity_nodes.data_of(EntityKind.USER, {})


def entity_size(key: str, value: EntityValue) -> int:
    """Return about how many bytes an entity takes in the store and in a push."""
    return len(key) + sum(len(name) + len(text) + 4 for name, text in value.items())


@dataclass(slots=True)
class StoredEntities:
    """All entities, and the nodes that stand below the fixed ones."""

    by_kind: dict[EntityKind, dict[str, EntityValue]] = field(
        default_factory=lambda: {kind: {} for kind in EntityKind}
    )
    paths: set[str] = field(default_factory=set)
    """The nodes that there are, also users and their ``clients`` that only have children."""
    clients: dict[str, int] = field(default_factory=dict)
    """How many client ids each user has quotas for, by the user's key."""
    size: int = 0
    """The size of all, as ``entity_size`` counts."""
    _in_order: dict[EntityKind, list[str]] = field(default_factory=dict, compare=False)
    """The keys of a kind in order, made when they are asked for and until they change."""

    def keys_in_order(self, kind: EntityKind) -> list[str]:
        """Return the keys of a kind, sorted."""
        keys = self._in_order.get(kind)
        if keys is None:
            keys = self._in_order[kind] = sorted(self.by_kind[kind])
        return keys

    def add_node(self, path: str, node: Node) -> None:
        """Take in a node that was read; PayloadError for one that cannot be read."""
        self.paths.add(path)
        found = entity_nodes.locate(path)
        if found is None:
            return
        kind, key = found
        value = entity_nodes.read_value(kind, path, node.data)
        if value:
            self._put(kind, key, value)

    def apply(
        self, kind: EntityKind, changes: EntityChanges, operations: Iterable[Operation]
    ) -> None:
        """Take over changes that are in the store, by these operations."""
        for key, value in changes.items():
            self._put(kind, key, value)
        for operation in operations:
            if isinstance(operation, Create):
                self.paths.add(operation.path)
            elif isinstance(operation, Delete):
                self.paths.discard(operation.path)

    def _put(self, kind: EntityKind, key: str, value: EntityValue | None) -> None:
        of_kind = self.by_kind[kind]
        before = of_kind.pop(key, None)
        if before is not None:
            self.size -= entity_size(key, before)
        if value:
            of_kind[key] = value
            self.size += entity_size(key, value)
        if (before is None) is bool(value):
            self._in_order.pop(kind, None)
        if kind is EntityKind.USER_CLIENT and (before is None) is bool(value):
            user = key.partition(CLIENTS)[0]
            self.clients[user] = self.clients.get(user, 0) + (1 if value else -1)
            if not self.clients[user]:
                del self.clients[user]


def load_entities(nodes: Mapping[str, Node]) -> StoredEntities:
    """Return the entities of a tree; PayloadError names a node that cannot be read."""
    entities = StoredEntities()
    above = tuple(f"{parent}/" for parent in entity_nodes.LISTED)
    for path, node in nodes.items():
        if path.startswith(above):
            entities.add_node(path, node)
    return entities


def real_changes(present: Mapping[str, EntityValue], changes: EntityChanges) -> EntityChanges:
    """Return those of some changes that change anything. An empty value is none."""
    found: dict[str, EntityValue | None] = {}
    for key, value in changes.items():
        if value != present.get(key) and (value or key in present):
            found[key] = dict(value) if value else None
    return found


def check_limits(entities: StoredEntities, kind: EntityKind, changes: EntityChanges) -> None:
    """Raise POLICY_VIOLATION for entities that are too many or too large. What makes them fewer or
    smaller is always allowed.
    """
    present = entities.by_kind[kind]
    count = sum((value is not None) - (key in present) for key, value in changes.items())
    what = kind.name.lower().replace("_", " ")
    if count > 0 and len(present) + count > MAX_ENTITIES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"there would be {len(present) + count} entities of kind {what}; the limit is "
            f"{MAX_ENTITIES}",
        )
    growth = 0
    for key, value in changes.items():
        before = entity_size(key, present[key]) if key in present else 0
        size = entity_size(key, value) if value else 0
        growth += size - before
        if size > max(MAX_ENTITY_BYTES, before):
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"an entity of kind {what} would have {size} bytes; the limit is "
                f"{MAX_ENTITY_BYTES}",
            )
    if growth > 0 and entities.size + growth > MAX_TOTAL_BYTES:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"all entities together would have more than {MAX_TOTAL_BYTES} bytes",
        )


def plan(entities: StoredEntities, kind: EntityKind, changes: EntityChanges) -> list[Operation]:
    """Return the store operations of changes (``real_changes``)."""
    made: set[str] = set()
    operations: list[Operation] = []
    for key, value in changes.items():
        operations += _operations(entities, kind, key, value, made)
    if kind is EntityKind.USER_CLIENT:
        operations += _without_clients(entities, changes)
    return operations


def _operations(
    entities: StoredEntities,
    kind: EntityKind,
    key: str,
    value: EntityValue | None,
    made: set[str],
) -> Iterator[Operation]:
    path = entity_nodes.path_of(kind, key)
    if not value:
        if kind is EntityKind.USER and key in entities.clients:
            yield SetData(path, _NO_USER_DATA)
        else:
            yield Delete(path)
        return
    data = entity_nodes.data_of(kind, value)
    if path in entities.paths:
        yield SetData(path, data)
        return
    if kind is EntityKind.USER_CLIENT:
        user = key.partition(CLIENTS)[0]
        above = (
            (entity_nodes.path_of(EntityKind.USER, user), _NO_USER_DATA),
            (entity_nodes.clients_of(user), b""),
        )
        for parent, empty in above:
            if parent not in entities.paths and parent not in made:
                made.add(parent)
                yield Create(parent, empty)
    yield Create(path, data)


def _without_clients(entities: StoredEntities, changes: EntityChanges) -> Iterator[Operation]:
    """Delete what held the client ids of users that have none any more."""
    left = dict(entities.clients)
    present = entities.by_kind[EntityKind.USER_CLIENT]
    for key, value in changes.items():
        user = key.partition(CLIENTS)[0]
        left[user] = left.get(user, 0) + (value is not None) - (key in present)
    for user in dict.fromkeys(key.partition(CLIENTS)[0] for key in changes):
        if left[user] == 0 and user in entities.clients:
            yield Delete(entity_nodes.clients_of(user))
            if user not in entities.by_kind[EntityKind.USER]:
                yield Delete(entity_nodes.path_of(EntityKind.USER, user))
