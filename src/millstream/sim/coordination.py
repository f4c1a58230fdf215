"""A ZooKeeper ensemble with sessions, and the store that a broker has of it.

::

    connecting ──answered──▶ connected ──silence of 2/3 of the time-out──▶ connecting
                                 │                                            │
                                 └── the ensemble heard nothing for a whole time-out: expired

What is modelled is what the code above can meet: a write whose connection is lost before or after
it was carried out; a session that is over long before its owner hears of it; ephemeral nodes that
outlive a killed process by the time-out; watches that tell that something changed and fold what
happened between two looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream.model.deferred import Deferred
from millstream.model.metadata_store import (
    CLOCK_DRIFT,
    ConnectionLossError,
    Done,
    MetadataStoreError,
    Node,
    Operation,
    SessionEvent,
    SessionExpiredError,
)
from millstream.sim.loop import Loop, NodeClock
from millstream.sim.metadata_tree import MetadataTree, Stat

T = TypeVar("T")

RECONNECT_MS: Final = 200.0
MISLED_LOOK_MS: Final = 5.0
"""How often it is looked whether an owner still counts on a session that was ended early."""


@dataclass(eq=False)
class _Misled:
    """A broker that counts on a session which was ended early, and until when it does."""

    store: SimMetadataStore
    session: int
    until_ms: float = math.inf


class Ensemble:
    """The servers' side: the tree and who is heard of. Its clock is the loop's."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.tree = MetadataTree()
        self.base_ms = 0.5
        self.jitter_ms = 1.0
        self.cuts: set[tuple[int, str]] = set()
        """(broker, "to") and (broker, "from"): what does not get through."""
        self._last_session = 0
        self._sessions: dict[int, tuple[float, float]] = {}
        """Time-out and when it was heard of last, by session."""
        self.stores: dict[SimMetadataStore, None] = {}
        self._misled: list[_Misled] = []

    def delay_ms(self) -> float:
        """Draw how long a message takes."""
        return self.base_ms + self.jitter_ms * self.loop.chance.random()

    def open_session(self, timeout_ms: float) -> int:
        """Begin a session."""
        self._last_session += 1
        session = self._last_session
        self._sessions[session] = (timeout_ms, self.loop.now_ms)
        self.loop.call_later(timeout_ms, lambda: self._check(session))
        return session

    def is_alive(self, session: int) -> bool:
        """Tell whether a session has not ended."""
        return session in self._sessions

    def heard(self, session: int) -> None:
        """Take note that a session's owner lives."""
        timeout_ms, _ = self._sessions[session]
        self._sessions[session] = (timeout_ms, self.loop.now_ms)

    def end_session(self, session: int) -> None:
        """End a session and take its ephemeral nodes away."""
        if self._sessions.pop(session, None) is not None:
            self.loop.note("session over", session)
            self.tree.end_session(session)
            self.changed()

    def end_early(self, session: int) -> None:
        """End a session before its time-out, as an operator of the ensemble can. No lease covers
        that: its owner counts on the session until it hears of the end, or its lease runs out.
        """
        for store in self.stores:
            if self.is_alive(session) and store.session_id == session:
                misled = _Misled(store, session)
                self._misled.append(misled)
                self._look_at(misled)
        self.end_session(session)

    def was_misled(self, broker: int, since_ms: float) -> bool:
        """Tell whether a broker counted, at some time since ``since_ms``, on a session that was
        ended early. One whose session timed out never is misled: its lease has to end before.
        """
        return any(
            each.store.broker == broker and each.until_ms >= since_ms for each in self._misled
        )

    def _look_at(self, misled: _Misled) -> None:
        if misled.store.counts_on(misled.session):
            self.loop.call_later(MISLED_LOOK_MS, lambda: self._look_at(misled))
        else:
            misled.until_ms = self.loop.now_ms

    def changed(self) -> None:
        """Let every store that watches look for what changed."""
        for store in tuple(self.stores):
            store.something_changed()

    def _check(self, session: int) -> None:
        found = self._sessions.get(session)
        if found is None:
            return
        timeout_ms, heard_ms = found
        left_ms = heard_ms + timeout_ms - self.loop.now_ms
        if left_ms > 0:
            self.loop.call_later(left_ms, lambda: self._check(session))
        else:
            self.end_session(session)


@dataclass(eq=False)
class _Asked:
    """One request under way."""

    fail: Callable[[Exception], None]
    sent_ms: float


class SimMetadataStore:
    """One broker's store (``model.metadata_store.MetadataStore``): one session after the other."""

    def __init__(
        self, ensemble: Ensemble, broker: int, clock: NodeClock, *, session_timeout_ms: float
    ) -> None:
        self._ensemble = ensemble
        self._broker = broker
        self._clock = clock
        self._timeout_ms = session_timeout_ms
        self._session = 0
        self._connected = False
        self._silent = False
        self._closed = False
        self._incarnation = 0
        self._confirmed_ms = clock.monotonic_ms()
        self._asked: dict[_Asked, None] = {}
        self._last_to_ms = self._last_from_ms = 0.0
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._seen: dict[str, Stat | None] = {}
        self._look_scheduled = False
        self._session_watchers: list[Callable[[SessionEvent], None]] = []

    @property
    def session_id(self) -> int:
        """The session; 0 while there is none."""
        return self._session

    @property
    def broker(self) -> int:
        """Whose store it is."""
        return self._broker

    def counts_on(self, session: int) -> bool:
        """Tell whether the process lives, and believes that it surely has this session."""
        return not self._clock.is_dead and session == self._session and self.lease_ms > 0

    @property
    def lease_ms(self) -> float:
        """How long the session surely lives on."""
        if not self._session:
            return 0.0
        lease_ms = self._timeout_ms * (1 - CLOCK_DRIFT)
        return self._confirmed_ms + lease_ms - self._clock.monotonic_ms()

    def open(self) -> None:
        """Connect; SessionEvent.CONNECTED says when that is done."""
        self._ensemble.stores[self] = None
        self._connect()
        self._tick()

    def watch_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Tell ``callback`` what becomes of the session."""
        self._session_watchers.append(callback)

    def get(self, path: str) -> Deferred[Node]:
        """Read a node."""
        return self._ask(lambda tree: tree.get(path))

    def get_all(self, paths: Sequence[str]) -> Deferred[Mapping[str, Node]]:
        """Read nodes; those that are absent are left out."""
        wanted = tuple(paths)
        return self._ask(lambda tree: tree.present(wanted))

    def children(self, path: str) -> Deferred[tuple[str, ...]]:
        """Return the names of a node's children."""
        return self._ask(lambda tree: tree.children(path))

    def tree(self, path: str) -> Deferred[Mapping[str, Node]]:
        """Read a node and all below it."""
        return self._ask(lambda tree: tree.below(path))

    def multi(self, operations: Sequence[Operation]) -> Deferred[tuple[Done, ...]]:
        """Carry out all or none."""
        planned, session = tuple(operations), self._session

        def write(tree: MetadataTree) -> tuple[Done, ...]:
            done = tree.multi(planned, session)
            self._ensemble.changed()
            return done

        return self._ask(write)

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call ``callback`` after changes of the node or of its list of children."""
        if path not in self._watches:
            self._seen[path] = self._ensemble.tree.stats.get(path)
        self._watches.setdefault(path, []).append(callback)

    def close(self) -> Deferred[None]:
        """End the session."""
        self._closed = True
        self._ensemble.stores.pop(self, None)
        if self._connected and (self._broker, "to") not in self._ensemble.cuts:
            self._ensemble.end_session(self._session)
        self._abandon(ConnectionLossError())
        return Deferred.of(None)

    def something_changed(self) -> None:
        """Look at what is watched, a little later: what happens meanwhile is folded."""
        if self._watches and not self._look_scheduled and self._connected:
            self._look_scheduled = True
            self._ensemble.loop.call_later(
                self._ensemble.delay_ms(), lambda: self._clock.run(self._look)
            )

    # --- the connection ----------------------------------------------------------------------

    def _is_cut(self, direction: str) -> bool:
        return (self._broker, direction) in self._ensemble.cuts

    def _connect(self) -> None:
        """Reach the ensemble, and go on with the session or begin another one."""
        if self._closed:
            return
        if self._is_cut("to") or self._is_cut("from"):
            self._clock.call_later(RECONNECT_MS, self._connect)
            return
        self._clock.call_later(2 * self._ensemble.delay_ms(), self._connected_now)

    def _connected_now(self) -> None:
        if self._closed:
            return
        ensemble = self._ensemble
        self._incarnation += 1
        if self._session and not ensemble.is_alive(self._session):
            self._session = 0
            self._silent = False
            self._abandon(SessionExpiredError())
            self._emit(SessionEvent.EXPIRED)
        if not self._session:
            self._session = ensemble.open_session(self._timeout_ms)
        ensemble.heard(self._session)
        self._connected = True
        self._silent = False
        self._confirmed_ms = self._clock.monotonic_ms()
        self._emit(SessionEvent.CONNECTED)
        self._look()

    def _tick(self) -> None:
        """Show that this broker lives; notice when nothing is answered."""
        if self._closed:
            return
        self._clock.call_later(self._timeout_ms / 6, self._tick)
        now_ms = self._clock.monotonic_ms()
        if not self._silent and self._session and now_ms - self._confirmed_ms > self._timeout_ms:
            self._silent = True
            if self._connected:
                self._drop()
            self._emit(SessionEvent.SILENT)
        oldest_ms = min((each.sent_ms for each in self._asked), default=now_ms)
        if self._connected and now_ms - oldest_ms > self._timeout_ms * 2 / 3:
            self._drop()
        elif self._connected:
            self._ask(lambda tree: None).on_done(lambda _: None)

    def _drop(self) -> None:
        """Give the connection up: nobody knows what became of what was asked on it."""
        self._connected = False
        self._incarnation += 1
        self._abandon(ConnectionLossError())
        self._clock.call_later(self._ensemble.loop.chance.random() * RECONNECT_MS, self._connect)

    def reset(self) -> None:
        """Break the connection."""
        if self._connected and not self._closed:
            self._clock.run(self._drop)

    def _abandon(self, error: Exception) -> None:
        asked, self._asked = self._asked, {}
        for each in asked:
            each.fail(error)

    def _emit(self, event: SessionEvent) -> None:
        for callback in tuple(self._session_watchers):
            callback(event)

    # --- requests ----------------------------------------------------------------------------

    def _ask(self, work: Callable[[MetadataTree], T]) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()
        if not self._connected or self._silent or not self._session:
            expired = not self._session
            outcome.fail(SessionExpiredError() if expired else ConnectionLossError())
            return outcome
        asked = _Asked(
            lambda error: None if outcome.done else outcome.fail(error), self._clock.monotonic_ms()
        )
        self._asked[asked] = None
        ensemble, incarnation = self._ensemble, self._incarnation
        loop = ensemble.loop

        def answered(finish: Callable[[], None]) -> None:
            if incarnation == self._incarnation and self._asked.pop(asked, 0) is None:
                self._confirmed_ms = asked.sent_ms
                finish()

        def arrive() -> None:
            if self._is_cut("to") or incarnation != self._incarnation or self._closed:
                return
            if not ensemble.is_alive(self._session):
                loop.call_later(
                    ensemble.delay_ms(), lambda: self._clock.run(lambda: self._refused(incarnation))
                )
                return
            ensemble.heard(self._session)
            finish = _outcome_of(work, ensemble.tree, outcome)
            if not self._is_cut("from"):
                self._last_from_ms = max(self._last_from_ms, loop.now_ms + ensemble.delay_ms())
                loop.call_later(
                    self._last_from_ms - loop.now_ms,
                    lambda: self._clock.run(lambda: answered(finish)),
                )

        self._last_to_ms = max(self._last_to_ms, loop.now_ms + ensemble.delay_ms())
        loop.call_later(self._last_to_ms - loop.now_ms, arrive)
        return outcome

    def _refused(self, incarnation: int) -> None:
        """Hear that the session is over."""
        if incarnation == self._incarnation and self._connected:
            self._connected = False
            self._connect()

    def _look(self) -> None:
        self._look_scheduled = False
        if not self._connected or self._closed or self._is_cut("from"):
            return
        for path, callbacks in tuple(self._watches.items()):
            stat = self._ensemble.tree.stats.get(path)
            if stat != self._seen.get(path):
                self._seen[path] = stat
                for callback in tuple(callbacks):
                    callback(path)


def _outcome_of(
    work: Callable[[MetadataTree], T], tree: MetadataTree, outcome: Deferred[T]
) -> Callable[[], None]:
    """Do the work now, and return what tells of it later."""
    try:
        value = work(tree)
    except MetadataStoreError as error:
        failure = error
        return lambda: None if outcome.done else outcome.fail(failure)
    return lambda: None if outcome.done else outcome.complete(value)
