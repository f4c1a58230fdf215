"""The metadata store of a broker that shares a machine: `model.metadata_store` at a keeper.

::

    opening --SessionOpened--> open --connection lost--> resuming --SessionOpened--> open
       ^                        |                           |
       +------ EXPIRED ---------+------ session is over ----+

What was sent on a connection that is lost may have been carried out: ConnectionLossError. What is
asked for without a connection waits for one until the session may have expired (SILENT). Nothing
that was meant for one session is sent in the next.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from millstream.keeper.links import Link, OpenLink
from millstream.keeper.messages import (
    MAX_REQUEST_BYTES,
    READ_AT_ONCE,
    UNASKED,
    Change,
    Changed,
    ChildrenListed,
    CloseSession,
    Failed,
    ListChildren,
    NodesChanged,
    NodesRead,
    OpenSession,
    Ping,
    ReadNodes,
    ReadTree,
    SessionEnded,
    SessionOpened,
    TooLargeError,
    WatchNodes,
    decode_frame,
    encode_frame,
    error_of,
    nodes_of,
    stored_operations,
)
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ProtocolError
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
from millstream.model.session_lease import SessionLease
from millstream.protocol.compile import MAX_ELEMENTS
from millstream.protocol.message import Message
from millstream.protocol.outgoing import Outgoing

log = logging.getLogger(__name__)

T = TypeVar("T")

_PINGS_PER_TIMEOUT: Final = 5
_FIRST_RETRY_MS: Final = 10.0
_MAX_RETRY_MS: Final = 200.0
_CLOSE_TIMEOUT_MS: Final = 3_000
_MAX_ID: Final = 0x7FFFFFFF


@dataclass(slots=True)
class _Asked:
    """A request without an answer yet; ``sent_ms`` is when it was sent, −1 before."""

    outcome: Deferred[Any]
    path: str
    frame: Outgoing
    sent_ms: float = -1.0


class KeeperMetadataStore:
    """Implements ``model.metadata_store.MetadataStore`` at the keeper that ``open_link`` reaches.
    ``name`` stands for this client in the keeper's log.
    """

    def __init__(
        self, open_link: OpenLink, *, clock: Clock, session_timeout_ms: int, name: str
    ) -> None:
        self._open_link = open_link
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._name = name
        self._link: Link | None = None
        self._is_open = False
        """True while the connection serves the session."""
        self._session_id = 0
        self._secret = b""
        self._lease = SessionLease(session_timeout_ms)
        self._silent = False
        self._closing = False
        self._opened: Deferred[None] = Deferred()
        self._asked: dict[int, _Asked] = {}
        self._waiting: dict[int, _Asked] = {}
        self._next_id = UNASKED
        self._retry_ms = _FIRST_RETRY_MS
        self._timers: dict[str, TimerHandle] = {}
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._session_watchers: list[Callable[[SessionEvent], None]] = []

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return self._session_id

    @property
    def lease_ms(self) -> float:
        """For how long the session is guaranteed to exist, in milliseconds; 0 or less if
        unknown.
        """
        return self._lease.remaining_ms(self._clock.monotonic_ms())

    def open(self, timeout_ms: float) -> Deferred[None]:
        """Connect and open a session; ConnectionLossError when no keeper answers in time."""
        self._timers["open"] = self._clock.call_later(timeout_ms, self._give_up)
        self._connect()
        self._tick()
        return self._opened

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call ``callback`` with the session's events from now on."""
        self._session_watchers.append(callback)

    def get(self, path: str) -> Deferred[Node]:
        """Read a node; NoNodeError when it is absent."""
        return spawn(self._get(path))

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        """Read nodes, many in a request; those that are absent are left out."""
        return spawn(self._get_all(list(paths)))

    def children(self, path: str) -> Deferred[tuple[str, ...]]:
        """Return the names of a node's children, sorted; NoNodeError when the node is absent."""
        return self._ask(
            path,
            ListChildren(path=path),
            lambda answer: tuple(cast(ChildrenListed, answer).names),
        )

    def tree(self, path: str) -> Deferred[Mapping[str, Node]]:
        """Read a node and all nodes below it, part by part; empty when the node is absent."""
        return spawn(self._tree(path))

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        """Carry out all operations or none; on the keeper's disk when the Deferred is filled.
        TooLargeError for more than a request holds, 16 MiB.
        """
        return self._ask(
            "",
            Change(operations=stored_operations(operations)),
            lambda answer: tuple(
                Done(each.version, each.creation_id) for each in cast(Changed, answer).done
            ),
        )

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call ``callback(path)`` after each change of the node or of its list of children, and
        once after a connection was lost.
        """
        callbacks = self._watches.setdefault(path, [])
        callbacks.append(callback)
        if len(callbacks) == 1 and self._is_open:
            self._send_request("", WatchNodes(paths=[path])).on_done(lambda _: None)

    def close(self) -> Deferred[None]:
        """End the session: its ephemeral nodes vanish. Waits for that for 3 seconds at most."""
        if self._closing:
            return Deferred.of(None)
        outcome: Deferred[None] = Deferred()

        def closed() -> None:
            if not outcome.done:
                self._stop()
                outcome.complete(None)

        if self._is_open:
            closing = self._send_request("", CloseSession())
            self._closing = True
            self._timers["close"] = self._clock.call_later(_CLOSE_TIMEOUT_MS, closed)
            closing.on_done(lambda _: closed())
        else:
            self._closing = True
            closed()
        return outcome

    # --- the connection (``LinkOwner``) ----------------------------------------------------------

    def connected(self) -> None:
        """Open a session, or resume the one that there is."""
        self._send_opening()

    def frame_received(self, frame: memoryview) -> None:
        """Take an answer, or what the keeper tells."""
        request_id, message = decode_frame(frame, MAX_ELEMENTS)
        if request_id != UNASKED:
            asked = self._asked.pop(request_id, None)
            if asked is not None:
                self._answered(asked, message)
        elif isinstance(message, NodesChanged):
            for path in message.paths:
                self._call_watchers(path)
        elif isinstance(message, SessionEnded):
            self._expired()
            if self._link is not None and not self._closing:
                self._send_opening()
        else:
            raise ProtocolError(f"a keeper sends {type(message).__name__} without a request")

    def closed(self, reason: str, *, by_peer: bool) -> None:
        """Connect again: the session is resumed if it lasts."""
        if self._is_open:
            log.warning("the connection to the keeper is lost: %s", reason)
        self._link = None
        self._is_open = False
        if not by_peer:  # to the keeper, this process has ended, and its session with it
            self._lease.forget()
        self._fail(self._asked, ConnectionLossError)
        if not self._closing:
            self._timers["connect"] = self._clock.call_later(self._retry_ms, self._connect)
            self._retry_ms = min(2 * self._retry_ms, _MAX_RETRY_MS)

    def _connect(self) -> None:
        if not self._closing:
            self._link = self._open_link(self)

    # --- the session -----------------------------------------------------------------------------

    def _send_opening(self) -> None:
        opening = self._send_request(
            "",
            OpenSession(
                session_id=self._session_id,
                secret=self._secret,
                timeout_ms=self._session_timeout_ms,
                name=self._name,
            ),
        )
        opening.on_done(self._session_answered)

    def _session_answered(self, done: Deferred[Message]) -> None:
        try:
            answer = done.result()
        except SessionExpiredError:
            self._expired()
            self._send_opening()
            return
        except ConnectionLossError:
            return
        assert isinstance(answer, SessionOpened)
        if self._session_id == 0:
            log.info("session %d at the keeper", answer.session_id)
        self._session_id = answer.session_id
        self._secret = answer.secret
        self._silent = False
        self._is_open = True
        self._retry_ms = _FIRST_RETRY_MS
        if self._watches:
            watching = self._send_request("", WatchNodes(paths=list(self._watches)))
            watching.on_done(self._watching)
        waiting, self._waiting = self._waiting, {}
        for request_id, asked in waiting.items():
            self._send(request_id, asked)
        if not self._opened.done:
            self._timers.pop("open").cancel()
            self._opened.complete(None)
        self._emit(SessionEvent.CONNECTED)

    def _watching(self, done: Deferred[Message]) -> None:
        """Tell all who watch: what changed while there was no connection was told to nobody."""
        try:
            done.result()
        except MetadataStoreError:
            return  # the next connection watches again
        for path in tuple(self._watches):
            self._call_watchers(path)

    def _expired(self) -> None:
        log.warning("session %d at the keeper is over: opening another one", self._session_id)
        self._session_id = 0
        self._secret = b""
        self._silent = False
        self._is_open = False
        self._lease.forget()
        self._fail(self._waiting, SessionExpiredError)
        self._fail(self._asked, ConnectionLossError)
        self._emit(SessionEvent.EXPIRED)

    def _tick(self) -> None:
        """Keep the session, and detect that it may have expired."""
        if self._closing:
            return
        delay_ms = self._lease.timeout_ms / _PINGS_PER_TIMEOUT
        self._timers["tick"] = self._clock.call_later(delay_ms, self._tick)
        if not self._session_id:
            return
        if not self._silent and not self._lease.holds(self._clock.monotonic_ms()):
            self._silent = True
            log.warning(
                "the keeper has not answered for the session time-out of %d ms",
                self._lease.timeout_ms,
            )
            self._fail(self._asked, ConnectionLossError)
            self._fail(self._waiting, ConnectionLossError)
            self._emit(SessionEvent.SILENT)
        if self._is_open:
            self._send_request("", Ping()).on_done(lambda _: None)

    def _confirm(self, sent_ms: float) -> None:
        self._lease.confirm(sent_ms)
        if self._silent and self._lease.holds(self._clock.monotonic_ms()):
            self._silent = False
            self._emit(SessionEvent.CONNECTED)

    def _emit(self, event: SessionEvent) -> None:
        for callback in tuple(self._session_watchers):
            callback(event)

    def _call_watchers(self, path: str) -> None:
        for callback in tuple(self._watches.get(path, ())):
            callback(path)

    def _give_up(self) -> None:
        if not self._opened.done:
            self._stop()
            self._opened.fail(ConnectionLossError())

    def _stop(self) -> None:
        self._closing = True
        for timer in self._timers.values():
            timer.cancel()
        link, self._link = self._link, None
        self._is_open = False
        self._session_id = 0
        self._lease.forget()
        self._fail(self._asked, ConnectionLossError)
        self._fail(self._waiting, ConnectionLossError)
        if link is not None:
            link.close()

    # --- requests --------------------------------------------------------------------------------

    async def _get(self, path: str) -> Node:
        found, _ = await self._read_nodes([path], path)
        if path not in found:
            raise NoNodeError(path)
        return found[path]

    async def _get_all(self, paths: Sequence[str]) -> Mapping[str, Node]:
        parts = [paths[i : i + READ_AT_ONCE] for i in range(0, len(paths), READ_AT_ONCE)]
        found: dict[str, Node] = {}
        for part, reading in [(part, self._read_nodes(part)) for part in parts]:
            nodes, looked = await reading
            found.update(nodes)
            while looked < len(part):
                nodes, count = await self._read_nodes(part[looked:])
                found.update(nodes)
                looked += count
        return found

    async def _tree(self, path: str) -> Mapping[str, Node]:
        found: dict[str, Node] = {}
        after = ""
        while True:
            answer = await self._ask(
                path,
                ReadTree(path=path, after=after),
                lambda each: cast(NodesRead, each),
            )
            found.update(nodes_of(answer.nodes))
            if answer.is_last:
                return found
            after = answer.nodes[-1].path

    def _read_nodes(
        self, paths: Sequence[str], path: str = ""
    ) -> Deferred[tuple[dict[str, Node], int]]:
        """Read nodes; how many of them were looked at is at least one."""

        def convert(answer: Message) -> tuple[dict[str, Node], int]:
            assert isinstance(answer, NodesRead)
            return nodes_of(answer.nodes), answer.looked

        return self._ask(path, ReadNodes(paths=list(paths)), convert)

    def _ask(self, path: str, request: Message, convert: Callable[[Message], T]) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()

        def answered(done: Deferred[Message]) -> None:
            try:
                answer = done.result()
            except MetadataStoreError as error:
                outcome.fail(error)
            else:
                outcome.complete(convert(answer))

        self._send_request(path, request, waits=True).on_done(answered)
        return outcome

    def _send_request(self, path: str, request: Message, *, waits: bool = False) -> Deferred[Any]:
        """Send a request now, or where it ``waits`` once there is a session."""
        outcome: Deferred[Any] = Deferred()
        if self._closing or (waits and self._silent):
            outcome.fail(ConnectionLossError(path))
            return outcome
        if waits and self._opened.done and self._session_id == 0:
            outcome.fail(SessionExpiredError(path))
            return outcome
        request_id = self._next_id = self._next_id % _MAX_ID + 1
        frame = encode_frame(request_id, request)
        if frame.size > MAX_REQUEST_BYTES:
            outcome.fail(TooLargeError(path))
            return outcome
        asked = _Asked(outcome, path, frame)
        if waits and not self._is_open:
            self._waiting[request_id] = asked
        else:
            self._send(request_id, asked)
        return outcome

    def _send(self, request_id: int, asked: _Asked) -> None:
        assert self._link is not None, "a request was sent without a connection"
        asked.sent_ms = self._clock.monotonic_ms()
        self._asked[request_id] = asked
        self._link.send(asked.frame)

    def _answered(self, asked: _Asked, message: Message) -> None:
        # The lease is not renewed from now on: the answer may have been queued while this process
        # did not run.
        if isinstance(message, SessionOpened):
            self._lease.grant(message.timeout_ms)
            self._lease.confirm(asked.sent_ms)
            asked.outcome.complete(message)
            return
        if not isinstance(message, Failed):
            self._confirm(asked.sent_ms)
            asked.outcome.complete(message)
            return
        error = error_of(message)
        if not isinstance(error, SessionExpiredError):
            self._confirm(asked.sent_ms)
        asked.outcome.fail(error)

    @staticmethod
    def _fail(requests: dict[int, _Asked], error: type[MetadataStoreError]) -> None:
        failed = list(requests.values())
        requests.clear()
        for each in failed:
            if not each.outcome.done:
                each.outcome.fail(error(each.path))
