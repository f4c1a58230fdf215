"""Requests to ZooKeeper as Deferreds on the broker's loop. The only user of kazoo, with
`kazoo_internals`.

kazoo works on threads of its own; answers and events are put into a queue that the loop empties.
Properties of kazoo and ZooKeeper that only this module relies on:

* A write that lost its connection may have been applied: ConnectionLossError, and the caller reads
  again. kazoo's ``retry`` is never used, because it continues in the next session.
* One kazoo client serves one session. When that expires the client is stopped before it can open
  another one, so that nothing that was meant for one session is carried out in the next.
* kazoo does not report a lost session while no server can be reached. `SessionLease` measures it
  locally, with the time-out that the server grants; see :class:`SessionEvent`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from kazoo.client import KazooClient
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import KazooState

from millstream.model.clock import Clock, TimerHandle
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
    SetData,
)
from millstream.model.session_lease import SessionLease
from millstream.zookeeper.answers import ANSWERED_ERRORS, done_by, node_of, translated
from millstream.zookeeper.connect_string import ConnectString
from millstream.zookeeper.kazoo_internals import (
    Multi,
    MultiRead,
    dispose,
    open_no_more_sessions,
    submit,
    watch_grants,
)
from millstream.zookeeper.security import ZooKeeperSecurity

log = logging.getLogger(__name__)

T = TypeVar("T")

WatchCallback = Callable[[], None]

_QUIET: Final = logging.getLogger("millstream.zookeeper.kazoo")
_QUIET.setLevel(logging.CRITICAL)
_EPHEMERAL_FLAG: Final = 1
_HEARTBEATS_PER_TIMEOUT: Final = 5
_ATTEMPTS_PER_TIMEOUT: Final = 6
_CLOSE_TIMEOUT_MS: Final = 3_000
_RECONNECT: Final[Mapping[str, float]] = {
    "max_tries": -1,
    "delay": 0.05,
    "backoff": 1.5,
    "max_jitter": 0.2,
    "max_delay": 1.0,
}


class Stat(NamedTuple):
    """The version of a node's state: creation, last set, last change of children."""

    creation_id: int
    set_id: int
    children_id: int


@dataclass(slots=True)
class _Asked:
    """A request without an answer yet, and when it was sent."""

    outcome: Deferred[Any]
    sent_ms: float
    path: str


class _Session:
    """One kazoo client, for one session."""

    def __init__(self, kazoo: Any) -> None:
        self.kazoo = kazoo
        self.id = 0
        self.over = False
        """Set by kazoo's thread as soon as the session ends, before anything else."""
        self.granted = (0.0, 0)
        """When the session was last requested from a server, and the granted time-out."""

    def take_grant(self, sent_ms: float, timeout_ms: int) -> None:
        """Store the granted time-out. Called on kazoo's thread."""
        self.granted = (sent_ms, timeout_ms)

    def end(self) -> None:
        """Keep kazoo from opening a second session. Called on its own thread when the session
        ends.
        """
        self.over = True
        open_no_more_sessions(self.kazoo)


class ZooKeeperClient:
    """One session after the other with an ensemble.

    ``on_event(event)`` is called on the loop with the session's events. ``call_on_loop`` schedules
    work there from other threads. Requests wait for a connection for up to the session time-out,
    then fail with ConnectionLossError.
    """

    def __init__(
        self,
        connect: ConnectString,
        *,
        clock: Clock,
        session_timeout_ms: int,
        call_on_loop: Callable[[Callable[[], None]], object],
        on_event: Callable[[SessionEvent], None],
        security: ZooKeeperSecurity | None = None,
    ) -> None:
        self._connect = connect
        self._security = security or ZooKeeperSecurity()
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._call_on_loop = call_on_loop
        self._on_event = on_event
        self._lease = SessionLease(session_timeout_ms)
        self._session: _Session | None = None
        self._closing = False
        self._silent = False
        self._asked: dict[int, _Asked] = {}
        self._next_request = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self._awake = False
        self._timer: TimerHandle | None = None

    # --- session ---------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        return 0 if self._session is None or self._session.over else self._session.id

    @property
    def lease_ms(self) -> float:
        """For how long the session is guaranteed to exist, in milliseconds; 0 or less if
        unknown.
        """
        return self._lease.remaining_ms(self._clock.monotonic_ms())

    def start(self) -> None:
        """Open a session; SessionEvent.CONNECTED says when it is there."""
        # kazoo waits for a server that accepts a connection and does not answer for the session
        # time-out divided by the number of servers; listing the servers repeatedly shortens that.
        servers = self._connect.servers
        repeated = servers * max(1, _ATTEMPTS_PER_TIMEOUT // len(servers))
        kazoo = KazooClient(
            hosts=",".join(repeated),
            timeout=self._session_timeout_ms / 1000,
            connection_retry=dict(_RECONNECT),
            logger=_QUIET,
            **self._security.client_options(),
        )
        session = _Session(kazoo)
        kazoo.add_listener(lambda state: self._heard(session, state))
        watch_grants(kazoo, self._clock.monotonic_ms, session.take_grant)
        self._session = session
        kazoo.start_async()
        self._tick()

    def close(self) -> Deferred[None]:
        """End the session, so that its ephemeral nodes vanish at once."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        outcome: Deferred[None] = Deferred()
        session, self._session = self._session, None
        if session is None:
            return Deferred.of(None)

        def closed() -> None:
            timer.cancel()
            if not outcome.done:
                outcome.complete(None)

        def work() -> None:
            dispose(session.kazoo)
            with contextlib.suppress(RuntimeError):  # the loop did not wait so long
                self._call_on_loop(closed)

        # If no server answers, the session times out and kazoo's thread ends on its own.
        timer = self._clock.call_later(_CLOSE_TIMEOUT_MS, closed)
        threading.Thread(target=work, name="zookeeper-close", daemon=True).start()
        self._abandon_requests()
        return outcome

    def _heard(self, session: _Session, state: str) -> None:
        """Handle a change of state on kazoo's thread."""
        if state == KazooState.LOST:
            session.end()
            self._post(lambda: self._expired(session))
        elif state == KazooState.CONNECTED:
            session_id, _ = session.kazoo.client_id
            self._post(lambda: self._connected(session, session_id))

    def _connected(self, session: _Session, session_id: int) -> None:
        if session is not self._session or session.over:
            return
        session.id = session_id
        self._silent = False
        sent_ms, timeout_ms = session.granted
        if timeout_ms != self._lease.timeout_ms:
            log.info("ZooKeeper grants a session time-out of %d ms", timeout_ms)
            self._lease.grant(timeout_ms)
        # Not from now on: the answer may have been queued while this process did not run.
        self._lease.confirm(sent_ms)
        # A caller whose write was lost with the connection reads again: this server first has to
        # catch up with the ensemble (sync).
        self._ask("/", lambda kazoo: kazoo.sync_async("/"), str).on_done(lambda _: None)
        self._on_event(SessionEvent.CONNECTED)
        self._tick()

    def _expired(self, session: _Session) -> None:
        if session is not self._session:
            return
        log.warning("the ZooKeeper session %#x is over: opening another one", session.id)
        self._session = None
        self._silent = False
        self._lease.forget()
        self._abandon_requests()
        threading.Thread(target=dispose, args=(session.kazoo,), daemon=True).start()
        self._on_event(SessionEvent.EXPIRED)
        if not self._closing:
            self.start()

    def _tick(self) -> None:
        """Send a cheap request to confirm the session; detect that it may have expired."""
        if self._timer is not None:
            self._timer.cancel()
        if self._closing:
            return
        delay_ms = self._lease.timeout_ms / _HEARTBEATS_PER_TIMEOUT
        self._timer = self._clock.call_later(delay_ms, self._tick)
        session = self._session
        if session is None or not session.id:
            return
        if not self._silent and not self._lease.holds(self._clock.monotonic_ms()):
            self._silent = True
            log.warning(
                "ZooKeeper at %s has not answered for the session time-out of %d ms",
                self._connect,
                self._lease.timeout_ms,
            )
            self._abandon_requests()
            self._on_event(SessionEvent.SILENT)
        self._ask("/", lambda kazoo: kazoo.exists_async("/"), bool).on_done(lambda _: None)

    # --- requests --------------------------------------------------------------------------

    def get(self, path: str) -> Deferred[Node]:
        """Read a node; NoNodeError when it is absent."""
        return self._request(path, lambda kazoo: kazoo.get_async(self._full(path)), node_of)

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        """Read nodes in one request; those that are absent are left out.

        UnsupportedError from a server older than ZooKeeper 3.6.
        """
        full = [self._full(path) for path in paths]
        return self._request(
            "",
            lambda kazoo: submit(kazoo, MultiRead(full)),
            lambda answer: {
                path: node_of(each) for path, each in zip(paths, answer, strict=True) if each
            },
        )

    def get_counted(self, path: str) -> Deferred[tuple[Node, int]]:
        """Read a node and how many children it has; NoNodeError when it is absent."""
        return self._request(
            path,
            lambda kazoo: kazoo.get_async(self._full(path)),
            lambda answer: (node_of(answer), answer[1].numChildren),
        )

    def children(self, path: str, watch: WatchCallback | None = None) -> Deferred[tuple[str, ...]]:
        """Return the names of a node's children, sorted; NoNodeError when the node is absent."""
        return self._request(
            path,
            lambda kazoo: kazoo.get_children_async(self._full(path), watch=_watcher(self, watch)),
            lambda names: tuple(sorted(names)),
        )

    def stat(self, path: str, watch: WatchCallback | None = None) -> Deferred[Stat | None]:
        """Return the state version of a node; None if it is absent."""
        return self._request(
            path,
            lambda kazoo: kazoo.exists_async(self._full(path), watch=_watcher(self, watch)),
            lambda stat: None if stat is None else Stat(stat.czxid, stat.mzxid, stat.pzxid),
        )

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        """Carry out all operations or none."""
        requests = [self._wire_form(operation) for operation in operations]

        return self._request(
            "",
            lambda kazoo: submit(kazoo, Multi(requests)),
            lambda answer: done_by(operations, answer),
        )

    def make_chroot(self) -> Deferred[None]:
        """Create the chroot node if it does not exist."""
        if not self._connect.chroot:
            return Deferred.of(None)
        return self._request(
            "/", lambda kazoo: kazoo.ensure_path_async(self._connect.chroot), lambda _: None
        )

    def _full(self, path: str) -> str:
        return (self._connect.chroot + path).rstrip("/") or "/"

    def _request(
        self, path: str, start: Callable[[Any], Any], convert: Callable[[Any], T]
    ) -> Deferred[T]:
        if self._silent:
            failed: Deferred[T] = Deferred()
            failed.fail(ConnectionLossError(path))
            return failed
        return self._ask(path, start, convert)

    def _ask(
        self, path: str, start: Callable[[Any], Any], convert: Callable[[Any], T]
    ) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()
        session = self._session
        if session is None or session.over:
            outcome.fail(SessionExpiredError(path))
            return outcome
        number = self._next_request
        self._next_request += 1
        self._asked[number] = _Asked(outcome, self._clock.monotonic_ms(), path)
        start(session.kazoo).rawlink(
            lambda result: self._post(lambda: self._answered(number, session, result, convert))
        )
        return outcome

    def _answered(
        self, number: int, session: _Session, result: Any, convert: Callable[[Any], T]
    ) -> None:
        asked = self._asked.pop(number, None)
        if asked is None:
            return  # abandoned meanwhile
        error = result.exception
        if error is None or type(error) in ANSWERED_ERRORS:
            self._confirm(session, asked)
        if error is not None:
            asked.outcome.fail(translated(error, asked.path))
            return
        try:
            value = convert(result.value)
        except MetadataStoreError as refused:
            asked.outcome.fail(refused)
        else:
            asked.outcome.complete(value)

    def _confirm(self, session: _Session, asked: _Asked) -> None:
        if session is not self._session or session.over:
            return
        self._lease.confirm(asked.sent_ms)
        if self._silent and self._lease.holds(self._clock.monotonic_ms()):
            self._silent = False
            self._on_event(SessionEvent.CONNECTED)

    def _abandon_requests(self) -> None:
        """Fail all outstanding requests: their outcome is unknown."""
        asked, self._asked = self._asked, {}
        for each in asked.values():
            each.outcome.fail(ConnectionLossError(each.path))

    def _wire_form(self, operation: Operation) -> Any:
        path = self._full(operation.path)
        match operation:
            case Create():
                flags = _EPHEMERAL_FLAG if operation.ephemeral else 0
                return wire.Create2(
                    path, operation.data, self._security.acl_of(operation.path), flags
                )
            case SetData():
                return wire.SetData(path, operation.data, operation.version)
            case Delete():
                return wire.Delete(path, operation.version)
            case Check():
                return wire.CheckVersion(path, operation.version)

    # --- from kazoo's threads to the loop ----------------------------------------------------

    def _post(self, work: Callable[[], None]) -> None:
        """Queue ``work`` for the loop; the loop is woken once for many items."""
        self._inbox.append(work)
        if not self._awake:
            self._awake = True
            self._call_on_loop(self._empty_inbox)

    def _empty_inbox(self) -> None:
        self._awake = False  # before the work: items posted from here on wake the loop again
        while True:
            try:
                work = self._inbox.popleft()
            except IndexError:
                return
            work()


def _watcher(client: ZooKeeperClient, watch: WatchCallback | None) -> Callable[[Any], None] | None:
    if watch is None:
        return None
    return _Watcher(client._post, watch)


class _Watcher:
    """A watcher for kazoo; two with the same callback are equal, so that kazoo keeps one of
    them.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None], callback: WatchCallback) -> None:
        self._post = post
        self._callback = callback

    def __call__(self, event: Any) -> None:
        self._post(self._callback)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Watcher) and other._callback == self._callback

    def __hash__(self) -> int:
        return hash(self._callback)
