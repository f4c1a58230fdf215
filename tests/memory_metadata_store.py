"""A twin of ZooKeeper in memory: one tree, sessions over it, and everything that can go wrong.

``MemoryTree.open()`` gives a store of its own session. A store answers at once. Its session can
``expire()``, go ``silent()`` and come back, and the next write can lose its connection before or
after it is carried out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from millstream.model.deferred import Deferred
from millstream.model.metadata_store import (
    Check,
    ConnectionLossError,
    Create,
    Delete,
    Done,
    MetadataStoreError,
    Node,
    Operation,
    SessionEvent,
    SessionExpiredError,
)
from millstream.sim.metadata_tree import MetadataTree, parent_of

T = TypeVar("T")


class MemoryTree(MetadataTree):
    """What all sessions see, the simulator's tree; it tells its stores of changes at once."""

    def __init__(self) -> None:
        super().__init__()
        self._sessions = itertools.count(1)
        self.stores: list[MemoryMetadataStore] = []
        self.writes = 0

    def open(self) -> MemoryMetadataStore:
        store = MemoryMetadataStore(self)
        self.stores.append(store)
        return store

    def new_session(self) -> int:
        return next(self._sessions)

    def multi(self, operations: Sequence[Operation], session: int) -> tuple[Done, ...]:
        done = super().multi(operations, session)
        self.writes += 1
        self._tell(operations)
        return done

    def _tell(self, operations: Sequence[Operation]) -> None:
        changed: dict[str, None] = {}
        for operation in operations:
            if not isinstance(operation, Check):
                changed[operation.path] = None
            if isinstance(operation, Create | Delete):
                changed[parent_of(operation.path)] = None
        for store in tuple(self.stores):
            store.changed(changed)


@dataclass
class Loss:
    """The next write loses its connection: before it is carried out, or after."""

    applied: bool


class MemoryMetadataStore:
    """One session after the other over a tree."""

    def __init__(self, tree: MemoryTree) -> None:
        self._tree = tree
        self._session = tree.new_session()
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._session_watchers: list[Callable[[SessionEvent], None]] = []
        self.is_silent = False
        self.losses: list[Loss] = []
        self.closed = False

    @property
    def session_id(self) -> int:
        return self._session

    @property
    def lease_ms(self) -> float:
        return math.inf

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self._session_watchers.append(callback)

    def get(self, path: str) -> Deferred[Node]:
        return self._answer(path, lambda: self._tree.get(path))

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        return self._answer("", lambda: self._tree.present(paths))

    def children(self, path: str) -> Deferred[tuple[str, ...]]:
        return self._answer(path, lambda: self._tree.children(path))

    def tree(self, path: str) -> Deferred[Mapping[str, Node]]:
        return self._answer(path, lambda: self._tree.below(path))

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        loss = self.losses.pop(0) if self.losses else None
        if loss is not None:
            if loss.applied:
                self._tree.multi(operations, self._session)
            return _failed(ConnectionLossError())
        return self._answer("", lambda: self._tree.multi(operations, self._session))

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches.setdefault(path, []).append(callback)

    def close(self) -> Deferred[None]:
        self.closed = True
        self._tree.stores.remove(self)
        self._tree.end_session(self._session)
        return Deferred.of(None)

    def changed(self, paths: Mapping[str, None]) -> None:
        if self.is_silent or self.closed:
            return
        for path in paths:
            for callback in tuple(self._watches.get(path, ())):
                callback(path)

    # --- what a test does to it ------------------------------------------------------------

    def expire(self) -> None:
        """End the session; the store hears of it and opens another one."""
        self._tree.end_session(self._session)
        self._session = 0
        self._emit(SessionEvent.EXPIRED)
        self._session = self._tree.new_session()
        self.is_silent = False
        self._emit(SessionEvent.CONNECTED)

    def vanish(self) -> None:
        """End the session as a killed process would: nobody hears of it here."""
        self.is_silent = True
        self._tree.end_session(self._session)

    def silence(self) -> None:
        """Let no answer come any more; the store notices."""
        self.is_silent = True
        self._emit(SessionEvent.SILENT)

    def reconnect(self) -> None:
        """Let answers come again, in the same session."""
        self.is_silent = False
        self._emit(SessionEvent.CONNECTED)

    def _emit(self, event: SessionEvent) -> None:
        for callback in tuple(self._session_watchers):
            callback(event)

    def _answer(self, path: str, work: Callable[[], T]) -> Deferred[T]:
        if self._session == 0:
            return _failed(SessionExpiredError(path))
        if self.is_silent:
            return _failed(ConnectionLossError(path))
        try:
            return Deferred.of(work())
        except MetadataStoreError as error:
            return _failed(error)


def _failed(error: Exception) -> Deferred[T]:
    outcome: Deferred[T] = Deferred()
    outcome.fail(error)
    return outcome
