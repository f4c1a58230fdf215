"""The data of a ZooKeeper ensemble: versions, creation ids, owners; multis that are atomic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from millstream.model.metadata_store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    Done,
    MetadataStoreError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
)


def parent_of(path: str) -> str:
    """Return the path of a node's parent."""
    return path.rpartition("/")[0] or "/"


@dataclass(frozen=True, slots=True)
class Stat:
    """What tells one state of a node from another: the transactions that made it, changed its data
    and changed its list of children.
    """

    czxid: int
    mzxid: int
    pzxid: int


class MetadataTree:
    """What all sessions see. ``on_change(before, after)`` hears of each transaction that changed
    something, with all nodes as they were and are.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.stats: dict[str, Stat] = {"/": Stat(0, 0, 0)}
        self.on_change: Callable[[dict[str, Node], dict[str, Node]], None] = lambda _, __: None
        self._transaction = 0

    def multi(self, operations: Sequence[Operation], session: int) -> tuple[Done, ...]:
        """Carry out all or none."""
        before, stats = dict(self.nodes), dict(self.stats)
        self._transaction += 1
        try:
            done = tuple(self._apply(each, session) for each in operations)
        except MetadataStoreError:
            self.nodes, self.stats = before, stats
            raise
        if any(not isinstance(each, Check) for each in operations):
            self.on_change(before, self.nodes)
        return done

    def end_session(self, session: int) -> None:
        """Take away what a session owned."""
        gone = [path for path, node in self.nodes.items() if node.owner == session]
        if gone:
            self.multi([Delete(path) for path in gone], 0)

    def get(self, path: str) -> Node:
        """Read a node."""
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node

    def present(self, paths: Iterable[str]) -> dict[str, Node]:
        """Return those of some nodes that are there, by path."""
        return {path: self.nodes[path] for path in paths if path in self.nodes}

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of a node's children, sorted."""
        self.get(path)
        return tuple(
            sorted(
                each.rpartition("/")[2]
                for each in self.nodes
                if each != "/" and parent_of(each) == path
            )
        )

    def below(self, path: str) -> dict[str, Node]:
        """Return a node and all below it."""
        prefix = path.rstrip("/") + "/"
        return {
            each: node
            for each, node in sorted(self.nodes.items())
            if each == path or each.startswith(prefix)
        }

    def _apply(self, operation: Operation, session: int) -> Done:
        path = operation.path
        match operation:
            case Create():
                parent = parent_of(path)
                if parent not in self.nodes:
                    raise NoNodeError(path)
                if path in self.nodes:
                    raise NodeExistsError(path)
                zxid = self._transaction
                owner = session if operation.ephemeral else 0
                self.nodes[path] = Node(operation.data, 0, zxid, owner)
                self.stats[path] = Stat(zxid, zxid, zxid)
                self.stats[parent] = replace(self.stats[parent], pzxid=zxid)
                return Done(0, zxid)
            case SetData():
                node = self._expect(path, operation.version)
                self.nodes[path] = replace(node, data=operation.data, version=node.version + 1)
                self.stats[path] = replace(self.stats[path], mzxid=self._transaction)
                return Done(node.version + 1, node.creation_id)
            case Delete():
                self._delete(path, operation.version)
                return Done(-1, -1)
            case Check():
                node = self._expect(path, operation.version)
                return Done(node.version, node.creation_id)

    def _delete(self, path: str, version: int) -> None:
        self._expect(path, version)
        if any(parent_of(each) == path for each in self.nodes if each != "/"):
            raise NotEmptyError(path)
        del self.nodes[path]
        del self.stats[path]
        parent = parent_of(path)
        self.stats[parent] = replace(self.stats[parent], pzxid=self._transaction)

    def _expect(self, path: str, version: int) -> Node:
        node = self.get(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        return node
