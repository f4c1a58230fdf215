"""The metadata store of a cluster: `model.metadata_store` over ZooKeeper.

ZooKeeper's watches fire once and fold several changes into one. So a watch here reads the node
again after each event, each new connection and each new session, and calls the callback whenever
the state of the node or its list of children has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.metadata_store import (
    ConnectionLossError,
    Done,
    MetadataStoreError,
    Node,
    NoNodeError,
    Operation,
    SessionEvent,
    SessionExpiredError,
)
from millstream.zookeeper.answers import UnsupportedError
from millstream.zookeeper.client import Stat, ZooKeeperClient
from millstream.zookeeper.connect_string import parse_connect_string
from millstream.zookeeper.security import ZooKeeperSecurity

READ_AT_ONCE: Final = 500
"""Nodes in one request for many."""
_ROOT_NODES: Final = frozenset({"zookeeper"})
"""ZooKeeper's own nodes below its root, which are not part of the tree."""


class ZooKeeperMetadataStore:
    """Implements ``model.metadata_store.MetadataStore`` over an ensemble.

    ``connect`` is a `zookeeper.connect`. After a session expires the store opens another one; the
    listener of :meth:`watch_session` creates its ephemeral nodes again.
    """

    def __init__(
        self,
        connect: str,
        *,
        clock: Clock,
        session_timeout_ms: int,
        call_on_loop: Callable[[Callable[[], None]], object],
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        self._client = ZooKeeperClient(
            parse_connect_string(connect),
            clock=clock,
            session_timeout_ms=session_timeout_ms,
            call_on_loop=call_on_loop,
            on_event=self._session_changed,
            security=security,
        )
        self._opened: Deferred[None] = Deferred()
        self._clock = clock
        self._watches: dict[str, _Watch] = {}
        self._session_watchers: list[Callable[[SessionEvent], None]] = []
        self._reads_one_by_one = False
        """True with servers that are older than ZooKeeper 3.6."""

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._client.session_id

    @property
    def lease_ms(self) -> float:
        """For how long the session is guaranteed to exist, in milliseconds; 0 or less if
        unknown.
        """
        return self._client.lease_ms

    def open(self, timeout_ms: int) -> Deferred[None]:
        """Connect and make the chroot; ConnectionLossError when no server answers in time."""
        timer = self._clock.call_later(timeout_ms, self._give_up)
        self._client.start()
        self._opened.on_done(lambda _: timer.cancel())
        return self._opened

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call ``callback`` with the session's events from now on."""
        self._session_watchers.append(callback)

    def get(self, path: str) -> Deferred[Node]:
        """Read a node; NoNodeError when it is absent."""
        return self._client.get(path)

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        """Read nodes, many in a request; those that are absent are left out."""
        return spawn(self._get_all(paths))

    def children(self, path: str) -> Deferred[tuple[str, ...]]:
        """Return the names of a node's children, sorted; NoNodeError when the node is absent."""
        return spawn(self._children(path))

    def tree(self, path: str) -> Deferred[Mapping[str, Node]]:
        """Read a node and all nodes below it, node by node; empty when it is absent."""
        return spawn(self._tree(path))

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        """Carry out all operations or none."""
        return self._client.multi(operations)

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call ``callback(path)`` after changes of the node or of its list of children."""
        watch = self._watches.get(path)
        if watch is None:
            watch = self._watches[path] = _Watch(self._client, path)
            watch.look()
        watch.callbacks.append(callback)

    def close(self) -> Deferred[None]:
        """End the session: its ephemeral nodes vanish."""
        return self._client.close()

    async def _get_all(self, paths: Sequence[str]) -> Mapping[str, Node]:
        """Read everything, in requests whose answers are not too large."""
        parts = [paths[i : i + READ_AT_ONCE] for i in range(0, len(paths), READ_AT_ONCE)]
        found: dict[str, Node] = {}
        if not self._reads_one_by_one:
            try:
                for reading in [self._client.get_all(part) for part in parts]:
                    found.update(await reading)
            except UnsupportedError:
                # Such a server also closes the connection, so the first request is lost with it.
                self._reads_one_by_one = True
                with suppress(ConnectionLossError):
                    return await self._get_one_by_one(paths)
            else:
                return found
        return await self._get_one_by_one(paths)

    async def _get_one_by_one(self, paths: Sequence[str]) -> Mapping[str, Node]:
        found = {}
        lost: ConnectionLossError | None = None
        for path, reading in [(path, self._client.get(path)) for path in paths]:
            try:
                found[path] = await reading
            except NoNodeError:
                continue
            except ConnectionLossError as error:
                lost = error
        if lost is not None:
            raise lost
        return found

    async def _children(self, path: str) -> tuple[str, ...]:
        names = await self._client.children(path)
        if path == "/":
            return tuple(name for name in names if name not in _ROOT_NODES)
        return names

    async def _tree(self, path: str) -> Mapping[str, Node]:
        """Read level by level, all nodes of a level at a time."""
        found: dict[str, Node] = {}
        level = [path]
        while level:
            parents = []
            for each, reading in [(each, self._client.get_counted(each)) for each in level]:
                try:
                    found[each], count = await reading
                except NoNodeError:
                    continue
                if count:
                    parents.append(each)
            level = []
            for parent, reading_names in [(each, self.children(each)) for each in parents]:
                try:
                    names = await reading_names
                except NoNodeError:
                    continue
                level += [f"{parent.rstrip('/')}/{name}" for name in names]
        return dict(sorted(found.items()))

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            for watch in self._watches.values():
                watch.look()
            if not self._opened.done:
                self._client.make_chroot().on_done(self._chroot_made)
        for callback in self._session_watchers:
            callback(event)

    def _chroot_made(self, made: Deferred[None]) -> None:
        if self._opened.done:
            return
        try:
            made.result()
        except (ConnectionLossError, SessionExpiredError):
            return  # the next connection tries again
        except MetadataStoreError as error:
            self._opened.fail(error)
        else:
            self._opened.complete(None)

    def _give_up(self) -> None:
        if not self._opened.done:
            self._opened.fail(ConnectionLossError())


class _Watch:
    """One watched node: its last known state, and its callback."""

    def __init__(self, client: ZooKeeperClient, path: str) -> None:
        self._client = client
        self._path = path
        self.callbacks: list[Callable[[str], None]] = []
        self._seen: Stat | None = None
        self._looked = False
        self._looking = False
        self._again = False

    def look(self) -> None:
        """Read the node's state and leave watches with the server."""
        if self._looking:
            self._again = True
            return
        self._looking = True
        # Both are sent at once and answered in this order, so a change after this call is detected.
        children = self._client.children(self._path, watch=self.look)
        stat = self._client.stat(self._path, watch=self.look)
        children.on_done(lambda names: stat.on_done(lambda found: self._take(names, found)))

    def _take(self, names: Deferred[tuple[str, ...]], found: Deferred[Stat | None]) -> None:
        self._looking = False
        again, self._again = self._again, False
        children_watched = True
        try:
            names.result()
        except NoNodeError:
            children_watched = False
        except MetadataStoreError:
            return  # the next connection looks again
        try:
            stat = found.result()
        except MetadataStoreError:
            return
        changed = self._looked and stat != self._seen
        self._looked = True
        self._seen = stat
        if again or (stat is not None and not children_watched):
            self.look()
        if changed:
            for callback in tuple(self.callbacks):
                callback(self._path)
