"""The metadata store of a standalone broker: the tree of `database`, off the loop, with watches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.model.metadata_store import (
    Check,
    Create,
    Delete,
    Done,
    MetadataStoreError,
    Node,
    Operation,
    SessionEvent,
)
from millstream.sqlite.database import Database, parent_of

T = TypeVar("T")

LANE: Final = "metadata"


class Lane(Protocol):
    """Runs blocking work on another thread, in order (``runtime.offload.Offload``)."""

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        """Run ``function`` after all earlier work of ``lane``."""


class SqliteMetadataStore:
    """Implements ``model.metadata_store.MetadataStore`` over one file in ``directory``.

    A Deferred may fail with StorageError besides the store's own errors: it is then unknown whether
    the write is on disk, and the broker must not continue to use the directory.
    """

    def __init__(self, offload: Lane, directory: Path) -> None:
        """Open the file on the lane; the first call fails if opening does."""
        self._offload = offload
        self._database: Database | None = None
        self._failure: StorageError | None = None
        self.closed = False
        self._watchers: dict[str, list[Callable[[str], None]]] = {}
        self._opening = offload.run(LANE, lambda: self._open(directory))

    @property
    def session_id(self) -> int:
        """How often the file was opened; 0 until it is open."""
        return 0 if self._database is None else self._database.session

    @property
    def lease_ms(self) -> float:
        """The session never expires."""
        return math.inf

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Accept a listener that is never called: the session of a file ends with its broker."""

    def opened(self) -> Deferred[None]:
        """Return a Deferred that completes once the file is open, or fails with StorageError."""
        return self._opening

    def get(self, path: str) -> Deferred[Node]:
        """Read a node; NoNodeError when it is absent."""
        return self._run(lambda database: database.get(path))

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        """Read nodes; those that are absent are left out."""
        wanted = tuple(paths)
        return self._run(lambda database: database.present(wanted))

    def children(self, path: str) -> Deferred[tuple[str, ...]]:
        """Return the names of a node's children, sorted; NoNodeError when the node is absent."""
        return self._run(lambda database: database.children(path))

    def tree(self, path: str) -> Deferred[Mapping[str, Node]]:
        """Read a node and all nodes below it, of one moment; empty when the node is absent."""
        return self._run(lambda database: database.tree(path))

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        """Carry out all operations or none; on disk when the Deferred is filled."""
        done = self._run(lambda database: database.multi(operations))
        done.on_done(lambda outcome: self._tell_watchers(outcome, operations))
        return done

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call ``callback(path)`` after each change of the node or of its list of children."""
        self._watchers.setdefault(path, []).append(callback)

    def close(self) -> Deferred[None]:
        """Remove this session's ephemeral nodes and close the file, if it was opened."""
        self.closed = True

        def work() -> None:
            if self._database is not None:
                self._database.close()

        return self._offload.run(LANE, work)

    def _open(self, directory: Path) -> None:
        try:
            self._database = Database(directory)
        except StorageError as error:
            self._failure = error
            raise

    def _run(self, function: Callable[[Database], T]) -> Deferred[T]:
        def work() -> T:
            if self._failure is not None:
                raise self._failure
            assert self._database is not None
            return function(self._database)

        return self._offload.run(LANE, work)

    def _tell_watchers(
        self, outcome: Deferred[tuple[Done, ...]], operations: Sequence[Operation]
    ) -> None:
        try:
            outcome.result()
        except (MetadataStoreError, StorageError):  # the caller has it; nothing changed
            return
        changed: dict[str, None] = {}
        for operation in operations:
            if not isinstance(operation, Check):
                changed[operation.path] = None
            if isinstance(operation, Create | Delete):
                changed[parent_of(operation.path)] = None
        for path in changed:
            for callback in self._watchers.get(path, ()):
                callback(path)
