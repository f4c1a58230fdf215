"""The store of a cluster's metadata: a tree of versioned nodes that changes in atomic steps.

The interface is the part of ZooKeeper that Millstream uses, and no more: versioned set, atomic
multi, ephemeral nodes, creation ids, watches. ``sqlite`` keeps it in one file for a standalone
broker, ``zookeeper`` in an ensemble. Paths and JSON payloads are Kafka's own in both. Every call
returns a Deferred: the disk or the network is waited for on another thread, and the Deferred is
completed on the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.errors import MillstreamError

ANY_VERSION: Final = -1
CLOCK_DRIFT: Final = 0.05
"""The share of a session time-out by which a lease ends early: the local clock may run slower than
the store's.
"""


@dataclass(frozen=True, slots=True)
class Node:
    """A node as it was read: ``version`` counts the sets since creation, ``creation_id`` (czxid)
    names the creation, ``owner`` is the session whose end removes it (0 for none).
    """

    data: bytes
    version: int
    creation_id: int
    owner: int = 0

    @property
    def ephemeral(self) -> bool:
        """True for a node that vanishes with a session."""
        return self.owner != 0


@dataclass(frozen=True, slots=True)
class Create:
    """Make a node; NodeExistsError if it is there, NoNodeError if its parent is not."""

    path: str
    data: bytes
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a node's data if its version is still ``version`` (or ANY_VERSION)."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a node that has no children if its version is still ``version`` (or ANY_VERSION)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the whole multi unless the node exists with ``version``."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Done:
    """The result of one operation of a successful multi: the node's version and creation id (−1
    after a delete, and where a check does not return it).
    """

    version: int
    creation_id: int


class MetadataStoreError(MillstreamError):
    """Base of a store's errors; ``path`` is the node concerned ("" if there is none)."""

    def __init__(self, path: str = "") -> None:
        super().__init__(f"{type(self).__name__}: {path}" if path else type(self).__name__)
        self.path = path


class NodeExistsError(MetadataStoreError):
    """The node to create exists already."""


class NoNodeError(MetadataStoreError):
    """The node, or the parent of a node to create, does not exist."""


class BadVersionError(MetadataStoreError):
    """The node has another version than the operation named."""


class NotEmptyError(MetadataStoreError):
    """A delete found children."""


class ConnectionLossError(MetadataStoreError):
    """It is unknown whether the write was applied: read again and compare; do not repeat
    blindly.
    """


class SessionExpiredError(MetadataStoreError):
    """The session and its ephemeral nodes are gone."""


class SessionEvent(Enum):
    """Events of a store's session."""

    CONNECTED = "connected"
    """The store answers: in a new session, or again in the same one."""
    SILENT = "silent"
    """Nothing was answered for a session time-out: the session may have expired."""
    EXPIRED = "expired"
    """The session is gone, and its ephemeral nodes with it; another one is being opened."""


class MetadataStore(Protocol):
    """A tree of versioned nodes. Every Deferred may fail with a MetadataStoreError."""

    @property
    def session_id(self) -> int:
        """The session that owns what is created ephemeral from now on; 0 while there is none."""

    @property
    def lease_ms(self) -> float:
        """For how long the session is guaranteed to exist, in milliseconds: 0 or less if unknown,
        infinite if it cannot expire. It ends early by ``CLOCK_DRIFT`` of the time-out.
        """

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call ``callback`` with the session's events from now on."""

    def get(self, path: str) -> Deferred[Node]:
        """Read a node; NoNodeError when it is absent."""

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        """Read nodes, by path; those that are absent are left out.

        Nodes that change meanwhile can be of different moments, as with :meth:`tree`.
        """

    def children(self, path: str) -> Deferred[tuple[str, ...]]:
        """Return the names (not paths) of a node's children, sorted; NoNodeError when the node is
        absent.
        """

    def tree(self, path: str) -> Deferred[Mapping[str, Node]]:
        """Read a node and all nodes below it, by path; empty when the node is absent.

        A start reads ten thousand partitions with it. A store may read node by node, so nodes that
        change meanwhile can be of different moments; there are no other writers while a controller
        loads.
        """

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        """Carry out all operations or none; the error is that of the first operation that could not
        be.
        """

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call ``callback(path)`` whenever the node or its children may have changed. The call may
        come after the answer to the change, and one call may stand for several changes; no call
        follows for a change that was told, unless the store was out of reach meanwhile.
        """

    def close(self) -> Deferred[None]:
        """End the session: its ephemeral nodes vanish."""
