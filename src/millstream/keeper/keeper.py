"""The keeper: owns the store, serves it to the brokers of one machine, ends their sessions.

A connection belongs to one session. When its client closes it, because it ends or was killed, the
session ends at once; when nothing is heard for the session time-out, because the client stands
still, it ends then. Sessions are in the store: a keeper that was started again resumes them for
whoever knows their secret, for one time-out, and ends the others after that.

Everything of a request that takes time goes through :mod:`millstream.keeper.group_commit`. Answers
that the client does not take are kept up to ``MAX_UNSENT_BYTES``; beyond, the connection is closed,
and the session goes on until its time-out, because its client may believe in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from millstream.keeper.group_commit import GroupCommit
from millstream.keeper.links import Link
from millstream.keeper.messages import (
    MAX_REQUEST_ELEMENTS,
    PART_BYTES,
    READ_AT_ONCE,
    SECRET_BYTES,
    UNASKED,
    Change,
    ChildrenListed,
    CloseSession,
    ListChildren,
    NodesChanged,
    NodesRead,
    OpenSession,
    Ping,
    Pong,
    ReadNodes,
    ReadTree,
    SessionEnded,
    SessionOpened,
    WatchNodes,
    changed,
    check_path,
    decode_frame,
    encode_frame,
    failed,
    operations_of,
    read_nodes,
)
from millstream.keeper.sessions import LOOK_MS, Sessions, granted_timeout
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import MillstreamError, ProtocolError
from millstream.model.metadata_store import (
    Check,
    Create,
    Delete,
    MetadataStoreError,
    Node,
    NoNodeError,
    Operation,
    SessionExpiredError,
)
from millstream.protocol.message import Message
from millstream.sqlite.database import Database, StoredSession, parent_of

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_UNSENT_BYTES: Final = 64 << 20
MAX_UNANSWERED: Final = 10_000
"""Requests of one connection that wait for the store at the same time."""
MAX_NAME: Final = 100
_NO_SESSION: Final = 0


class Keeper:
    """Serves one store. ``new_secret(size)`` makes what proves whose a session is."""

    def __init__(
        self,
        store: GroupCommit,
        clock: Clock,
        *,
        new_secret: Callable[[int], bytes],
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_secret = new_secret
        self._sessions = Sessions(clock.monotonic_ms())
        self._connections: set[Connection] = set()
        self._holders: dict[int, Connection] = {}
        """The connection that a session has now."""
        self._watchers: dict[str, dict[Connection, None]] = {}
        self._timer: TimerHandle | None = None

    @property
    def has_clients(self) -> bool:
        """True while a client is connected."""
        return bool(self._connections)

    def start(self) -> Deferred[None]:
        """Open the store and take over its sessions; fails with StorageError."""
        outcome: Deferred[None] = Deferred()

        def opened(done: Deferred[None]) -> None:
            try:
                done.result()
            except MillstreamError as error:
                outcome.fail(error)
            else:
                self._store.run(Database.sessions).on_done(restored)

        def restored(done: Deferred[dict[int, StoredSession]]) -> None:
            now_ms = self._clock.monotonic_ms()
            self._sessions = Sessions(now_ms)
            for number, stored in done.result().items():
                self._sessions.add(number, stored.secret, stored.timeout_ms, now_ms)
            self._look()
            outcome.complete(None)

        self._store.open().on_done(opened)
        return outcome

    def accept(self, link: Link) -> Connection:
        """Return the owner of a client's connection."""
        connection = Connection(self, link)
        self._connections.add(connection)
        return connection

    def stop(self) -> Deferred[None]:
        """Close everything; sessions stay in the store."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in tuple(self._connections):
            self._forget(connection)
            connection.link.close()
        return self._store.close()

    # --- sessions ----------------------------------------------------------------------------

    def open_session(self, connection: Connection, request_id: int, wanted: OpenSession) -> None:
        """Open a session, or resume one; SessionExpiredError is answered for one that is over."""
        if wanted.session_id == _NO_SESSION:
            stored = StoredSession(
                self._new_secret(SECRET_BYTES), granted_timeout(wanted.timeout_ms)
            )
            adding = self._store.run(lambda database: database.add_session(stored))
            adding.on_done(lambda done: self._added(connection, request_id, stored, done.result()))
            return
        number = wanted.session_id
        session = self._sessions.resume(number, wanted.secret, self._clock.monotonic_ms())
        if session is None:
            connection.refuse(request_id, SessionExpiredError())
            return
        before = self._holders.get(number)
        if before is not None:  # the client has given that connection up, whatever it looks like
            before.session_id = _NO_SESSION
            self._forget(before)
            before.link.close()
        log.info("%s resumes session %d", connection.name, number)
        self._hold(connection, number)
        opened = SessionOpened(
            session_id=number, secret=session.secret, timeout_ms=session.timeout_ms
        )
        connection.answer(request_id, opened)

    def _added(
        self, connection: Connection, request_id: int, stored: StoredSession, number: int
    ) -> None:
        self._sessions.add(number, stored.secret, stored.timeout_ms, self._clock.monotonic_ms())
        if connection not in self._connections:  # it did not wait for the answer
            self.end_session(number)
            return
        log.info("%s opens session %d", connection.name, number)
        self._hold(connection, number)
        connection.answer(
            request_id,
            SessionOpened(session_id=number, secret=stored.secret, timeout_ms=stored.timeout_ms),
        )

    def _hold(self, connection: Connection, number: int) -> None:
        connection.session_id = number
        connection.is_opening = False
        self._holders[number] = connection

    def heard(self, number: int) -> bool:
        """Take note of a request of a session; False when it is over."""
        return self._sessions.heard(number, self._clock.monotonic_ms())

    def end_session(self, number: int) -> Deferred[tuple[str, ...]]:
        """End a session: no request of it is taken from now on, and its ephemeral nodes are deleted
        after those that were.
        """
        self._sessions.end(number)
        holder = self._holders.pop(number, None)
        if holder is not None:
            holder.session_id = _NO_SESSION
        ending = self._store.run(lambda database: database.end_session(number))

        def ended(done: Deferred[tuple[str, ...]]) -> None:
            deleted = done.result()
            self._tell(each for path in deleted for each in (path, parent_of(path)))

        ending.on_done(ended)
        return ending

    def _look(self) -> None:
        for number in self._sessions.expired(self._clock.monotonic_ms()):
            connection = self._holders.get(number)
            who = "a client that has not come back" if connection is None else connection.name
            log.warning("session %d of %s is over: nothing was heard in time", number, who)
            self.end_session(number)
            if connection is not None:
                connection.tell(SessionEnded())
        self._timer = self._clock.call_later(LOOK_MS, self._look)

    # --- connections ---------------------------------------------------------------------------

    def lost(self, connection: Connection, *, by_peer: bool) -> None:
        """Forget a connection that is gone, and its session where the client has ended it."""
        self._forget(connection)
        number = connection.session_id
        if number != _NO_SESSION and by_peer:
            log.info("%s has closed its connection: session %d is over", connection.name, number)
            self.end_session(number)

    def _forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        for path in connection.watched:
            watchers = self._watchers.get(path)
            if watchers is not None:
                watchers.pop(connection, None)
                if not watchers:
                    del self._watchers[path]
        connection.watched.clear()
        if self._holders.get(connection.session_id) is connection:
            del self._holders[connection.session_id]

    # --- requests --------------------------------------------------------------------------------

    def read(self, work: Callable[[Database], T]) -> Deferred[T]:
        """Read from the store."""
        return self._store.run(work)

    def change(self, number: int, operations: Sequence[Operation]) -> Deferred[Any]:
        """Carry out operations for a session, then tell who watches."""
        changing = self._store.run(lambda database: database.multi(operations, number))
        changing.on_done(lambda done: self._tell_of(done, operations))
        return changing

    def watch(self, connection: Connection, paths: Iterable[str]) -> None:
        """Tell a connection of changes of these nodes from now on."""
        for path in paths:
            connection.watched.add(check_path(path))
            self._watchers.setdefault(path, {})[connection] = None

    def _tell_of(self, done: Deferred[Any], operations: Sequence[Operation]) -> None:
        try:
            done.result()
        except MetadataStoreError:  # the caller has it; nothing changed
            return
        paths = []
        for operation in operations:
            if not isinstance(operation, Check):
                paths.append(operation.path)
            if isinstance(operation, Create | Delete):
                paths.append(parent_of(operation.path))
        self._tell(paths)

    def _tell(self, paths: Iterable[str]) -> None:
        told: dict[Connection, list[str]] = {}
        for path in dict.fromkeys(paths):
            for connection in self._watchers.get(path, ()):
                told.setdefault(connection, []).append(path)
        for connection, changed_paths in told.items():
            connection.tell(NodesChanged(paths=changed_paths))


class Connection:
    """One client's connection; a ``LinkOwner``."""

    def __init__(self, keeper: Keeper, link: Link) -> None:
        self._keeper = keeper
        self.link = link
        self.session_id = _NO_SESSION
        self.watched: set[str] = set()
        self.name = "a client"
        self.is_opening = False
        """True while a new session is being stored."""
        self._unanswered = 0

    def connected(self) -> None:
        """Nothing: it was accepted."""

    def closed(self, reason: str, *, by_peer: bool) -> None:
        """Forget the connection."""
        if not by_peer:
            log.warning("the connection of %s is closed: %s", self.name, reason)
        self._keeper.lost(self, by_peer=by_peer)

    def frame_received(self, frame: memoryview) -> None:
        """Serve one request; ProtocolError closes the connection."""
        request_id, request = decode_frame(frame, MAX_REQUEST_ELEMENTS)
        if request_id <= UNASKED:
            raise ProtocolError(f"a request has the id {request_id}")
        if self._unanswered >= MAX_UNANSWERED:
            raise ProtocolError(f"{self._unanswered} requests wait for an answer")
        if isinstance(request, OpenSession):
            self._open(request_id, request)
        elif self.session_id == _NO_SESSION or not self._keeper.heard(self.session_id):
            self.refuse(request_id, SessionExpiredError())
        else:
            self._serve(request_id, request)

    def _open(self, request_id: int, request: OpenSession) -> None:
        if self.session_id != _NO_SESSION or self.is_opening:
            raise ProtocolError("this connection has a session")
        shown = request.name[:MAX_NAME]
        self.name = shown if shown.isprintable() and shown else "a client"
        self.is_opening = request.session_id == _NO_SESSION
        self._keeper.open_session(self, request_id, request)

    def _serve(self, request_id: int, request: Message) -> None:
        keeper = self._keeper
        match request:
            case Ping():
                self.answer(request_id, Pong())
            case ReadNodes():
                paths = list(map(check_path, request.paths[:READ_AT_ONCE]))
                self._answer_later(request_id, keeper.read(partial(_read_some, paths)), _as_it_is)
            case ListChildren():
                path = check_path(request.path)
                reading = keeper.read(lambda database: database.children(path))
                self._answer_later(
                    request_id, reading, lambda names: ChildrenListed(names=list(names))
                )
            case ReadTree():
                path, after = check_path(request.path), request.after
                read_part = partial(_read_part, path, after)
                self._answer_later(request_id, keeper.read(read_part), _as_it_is)
            case Change():
                operations = operations_of(request.operations)
                self._answer_later(request_id, keeper.change(self.session_id, operations), changed)
            case WatchNodes():
                keeper.watch(self, request.paths)
                self.answer(request_id, Pong())
            case CloseSession():
                ending = keeper.end_session(self.session_id)
                self._answer_later(request_id, ending, lambda _: Pong())
            case _:
                raise ProtocolError(f"{type(request).__name__} is no request")

    def _answer_later(
        self, request_id: int, outcome: Deferred[T], answer: Callable[[T], Message]
    ) -> None:
        self._unanswered += 1

        def done(each: Deferred[T]) -> None:
            self._unanswered -= 1
            try:
                value = each.result()
            except MetadataStoreError as error:
                self.refuse(request_id, error)
            else:
                self.answer(request_id, answer(value))

        outcome.on_done(done)

    def refuse(self, request_id: int, error: MetadataStoreError) -> None:
        """Answer a request with an error."""
        self.is_opening = False
        self.answer(request_id, failed(error))

    def answer(self, request_id: int, message: Message) -> None:
        """Send an answer; a connection whose client takes nothing is closed."""
        if self.link.pending_bytes > MAX_UNSENT_BYTES:
            log.warning("%s does not read its answers: its connection is closed", self.name)
            self.link.close()
            self._keeper.lost(self, by_peer=False)
            return
        self.link.send(encode_frame(request_id, message))

    def tell(self, message: Message) -> None:
        """Send something that was not asked for."""
        self.answer(UNASKED, message)


def _as_it_is(message: NodesRead) -> NodesRead:
    return message


def _read_some(paths: Sequence[str], database: Database) -> NodesRead:
    """Read nodes in their order, until the answer is large enough."""
    found: dict[str, Node] = {}
    size = looked = 0
    for path in paths:
        looked += 1
        with suppress(NoNodeError):
            node = found[path] = database.get(path)
            size += len(path) + len(node.data)
            if size >= PART_BYTES:
                break
    return NodesRead(nodes=read_nodes(found), looked=looked)


def _read_part(path: str, after: str, database: Database) -> NodesRead:
    """Read a part of a tree: the node itself first, where nothing was read yet."""
    found: dict[str, Node] = {}
    if not after:
        try:
            found[path] = database.get(path)
        except NoNodeError:
            return NodesRead(nodes=[])
    below, is_last = database.part_of_tree(path, after=after, max_bytes=PART_BYTES)
    return NodesRead(nodes=read_nodes(found | below), is_last=is_last)
