"""A keeper and its clients with virtual time: links in memory that can be cut, processes that can
stand still or be killed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from millstream.keeper.group_commit import GroupCommit
from millstream.keeper.keeper import Keeper
from millstream.keeper.links import LinkOwner
from millstream.keeper.metadata_store import KeeperMetadataStore
from millstream.model.deferred import Deferred
from millstream.model.errors import ProtocolError
from millstream.model.metadata_store import SessionEvent
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.offload import InlineOffload
from millstream.sim.loop import Loop, NodeClock

T = TypeVar("T")

LATENCY_MS = 1.0
TIMEOUT_MS = 3_000


class End:
    """One end of a link in memory."""

    def __init__(self, loop: Loop, clock: NodeClock) -> None:
        self.loop = loop
        self.clock = clock
        self.owner: LinkOwner | None = None
        self.other: End | None = None
        self.is_closed = False
        self.is_frozen = False
        self.held: list[Callable[[], None]] = []
        self.pending_bytes = 0
        self.sent: list[bytes] = []

    def send(self, outgoing: Outgoing) -> None:
        if self.is_closed:
            return
        frame = outgoing.join()
        self.sent.append(frame)
        self._later(lambda other: other._take(frame))

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._later(lambda other: other._ended())

    def _later(self, work: Callable[[End], None]) -> None:
        other = self.other
        assert other is not None

        def arrive() -> None:
            if self.is_frozen:
                self.held.append(arrive)
            else:
                other.clock.run(lambda: work(other))

        self.loop.call_later(LATENCY_MS, arrive)

    def thaw(self) -> None:
        self.is_frozen = False
        held, self.held = self.held, []
        for each in held:
            each()

    def _take(self, frame: bytes) -> None:
        if self.is_closed:
            return
        assert self.owner is not None
        try:
            self.owner.frame_received(memoryview(frame)[4:])
        except ProtocolError as error:
            self.close()
            self.owner.closed(str(error), by_peer=False)

    def _ended(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            assert self.owner is not None
            self.owner.closed("the other side closed the connection", by_peer=True)


class Client:
    """A store, its clock, its connections and what its session went through."""

    def __init__(self, site: KeeperSite, rate: float, timeout_ms: int) -> None:
        self.clock = NodeClock(site.loop, rate=rate)
        self.events: list[SessionEvent] = []
        self.ends: list[End] = []
        self.store = KeeperMetadataStore(
            lambda owner: site.connect(self, owner),
            clock=self.clock,
            session_timeout_ms=timeout_ms,
            name="broker",
        )
        self.store.watch_session(self.events.append)

    @property
    def end(self) -> End:
        return self.ends[-1]

    def freeze(self) -> None:
        """Let nothing through, in both directions."""
        other = self.end.other
        assert other is not None
        self.end.is_frozen = other.is_frozen = True

    def thaw(self) -> None:
        other = self.end.other
        assert other is not None
        self.end.thaw()
        other.thaw()

    def kill(self) -> None:
        """End the process: the kernel closes its socket."""
        self.clock.is_dead = True
        self.end.close()


class KeeperSite:
    """One keeper over one directory; it can be killed and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loop = Loop(1)
        self.failures: list[Exception] = []
        self._secrets = itertools.count(1)
        self._keeper_ends: list[End] = []
        self.start()

    def start(self) -> None:
        self.clock = NodeClock(self.loop)
        self.commits = GroupCommit(InlineOffload(), self.directory, on_failed=self.failures.append)
        self.keeper = Keeper(
            self.commits,
            self.clock,
            new_secret=lambda size: next(self._secrets).to_bytes(size, "big"),
        )
        self.keeper.start().result()
        self.is_up = True

    def kill_keeper(self) -> None:
        self.is_up = False
        self.clock.is_dead = True
        database = self.commits._database
        assert database is not None
        database.abandon()
        for end in self._keeper_ends:
            end.close()
        self._keeper_ends.clear()

    def connect(self, client: Client, owner: LinkOwner) -> End:
        near, far = End(self.loop, client.clock), End(self.loop, self.clock)
        near.other, far.other = far, near
        near.owner = owner
        client.ends.append(near)

        def accepted() -> None:
            if not self.is_up:
                near.is_closed = True
                owner.closed("connection refused", by_peer=True)
                return
            far.owner = self.keeper.accept(far)
            self._keeper_ends.append(far)
            owner.connected()

        self.loop.call_later(LATENCY_MS, lambda: client.clock.run(accepted))
        return near

    def client(self, *, rate: float = 1.0, timeout_ms: int = TIMEOUT_MS) -> Client:
        client = Client(self, rate, timeout_ms)
        self.wait(client.store.open(10_000))
        return client

    def wait(self, deferred: Deferred[T]) -> T:
        for _ in range(20_000):
            if deferred.done:
                return deferred.result()
            self.run_for(1)
        raise AssertionError("waited in vain")

    def run_for(self, milliseconds: float) -> None:
        self.loop.run_until(self.loop.now_ms + milliseconds)
        assert self.loop.uncaught == []
