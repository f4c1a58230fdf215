"""Connections between processes of a simulation: in order, late, held up, broken.

As TCP does it: what is sent on a connection arrives in order or not at all. A directed link that is
cut holds everything back until it heals, and then all of it arrives, as late as it may be. Two
connections are in no order among each other; what an old one still carries can arrive after what a
new one brought.

==========  ====================================================================================
cut         nothing goes from one process to another; connects hang and time out
unreachable  what one process opens to another is swallowed or reset; the other one's connections
            to the first go on: a listener that is ill, of a process that is well
reset       the connections between two processes break, what is under way on them is lost
slow        a class of messages (one API between two processes) takes much longer
==========  ====================================================================================
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Protocol

from millstream.model.deferred import Deferred
from millstream.model.errors import ConnectionClosedError, ProtocolError
from millstream.net.connection import Served
from millstream.protocol.outgoing import IN_MEMORY, Outgoing
from millstream.runtime.broker_channels import TransportOwner
from millstream.sim.loop import Loop, NodeClock

CONNECT_TIMEOUT_MS: Final = 8_000


class ServerSession(Protocol):
    """Who serves one connection (``server.dispatch.DispatchSession``)."""

    serve: Callable[[memoryview], Served]

    def closed(self) -> None:
        """The peer has hung up."""


@dataclass
class Host:
    """One process as the network sees it; each life of a broker is another one."""

    number: int
    clock: NodeClock
    accept: Callable[[int], ServerSession] | None = None
    """Takes a connection; None while nobody listens."""
    is_off: bool = False
    """True for a machine without power: it does not even refuse."""
    connections: dict[Connection, None] = field(default_factory=dict)


@dataclass
class Weather:
    """How the network of one seed behaves."""

    base_ms: float = 0.2
    jitter_ms: float = 1.0
    slow: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """Extra milliseconds, at most, of (source, target, API key) of requests and their answers."""


class Network:
    """All hosts by number, and what is wrong between them."""

    def __init__(self, loop: Loop, weather: Weather) -> None:
        self.loop = loop
        self.weather = weather
        self.hosts: dict[int, Host] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.unreachable: dict[tuple[int, int], bool] = {}
        """Connections by (who opens, who accepts) that carry nothing: True where they are reset,
        False where they swallow."""
        self.closed_to: set[tuple[int, int]] = set()
        """Connections by (who opens, who accepts) that cannot be opened any more; those that are
        open go on, as after the end of a certificate."""
        self.frames = 0
        self.requests: Counter[tuple[int, int, int]] = Counter()
        """How many were sent, by (source, target, API key)."""
        self._stalled: list[Flow] = []
        self._chance: Random = loop.chance

    def delay_ms(self, source: int, target: int, api_key: int) -> float:
        """Draw how long a message takes."""
        weather = self.weather
        delay_ms = weather.base_ms + weather.jitter_ms * self._chance.random()
        slow_ms = weather.slow.get((source, target, api_key))
        if slow_ms is not None:
            delay_ms += slow_ms * self._chance.random()
        return delay_ms

    def cut(self, source: int, target: int) -> None:
        """Let nothing go from one to another."""
        self.cuts.add((source, target))

    def heal(self, source: int, target: int) -> None:
        """Let what was held up go on."""
        self.cuts.discard((source, target))
        self._go_on()

    def make_unreachable(self, openers: Iterable[int], target: int, *, resets: bool) -> None:
        """Let nothing pass on connections that ``openers`` have to ``target``, or open to it."""
        for each in openers:
            self.unreachable[each, target] = resets
            if resets:
                self.reset(each, target, opened_by=each)

    def make_reachable(self, openers: Iterable[int], target: int) -> None:
        """Let what was swallowed go on."""
        for each in openers:
            self.unreachable.pop((each, target), None)
        self._go_on()

    def holds(self, flow: Flow) -> bool:
        """Tell whether nothing passes on one direction of a connection."""
        link = flow.source.number, flow.target.number
        return link in self.cuts or flow.opened in self.unreachable

    def _go_on(self) -> None:
        stalled, self._stalled = self._stalled, []
        for flow in stalled:
            if self.holds(flow):
                self._stalled.append(flow)
            else:  # the sender repeats itself after a while
                self.loop.call_later(self._chance.random() * 400, flow.go_on)

    def stall(self, flow: Flow) -> None:
        """Remember a flow that is held up."""
        self._stalled.append(flow)

    def reset(self, one: int, other: int, opened_by: int | None = None) -> None:
        """Break every connection between two hosts, or those that one of them has opened."""
        host = self.hosts.get(one)
        for connection in tuple(host.connections) if host else ():
            if connection.joins(one, other) and opened_by in (None, connection.opener):
                connection.reset()

    def opener(self, host: Host) -> Opener:
        """Return the network as one host sees it."""
        return Opener(self, host)


class Opener:
    """Opens connections from one host (``runtime.broker_channels.Network``)."""

    def __init__(self, network: Network, host: Host) -> None:
        self._network = network
        self._host = host

    def open(self, host: str, port: int, owner: TransportOwner) -> Connection:
        """Begin to connect to the broker whose number is ``port``."""
        return Connection(self._network, self._host, port, owner)


class Flow:
    """One direction of one connection."""

    def __init__(
        self,
        network: Network,
        source: Host,
        target: Host,
        receive: Callable[[bytes | None], None],
        *,
        opened: tuple[int, int],
    ) -> None:
        self.opened = opened
        """Who has opened the connection, and who has accepted it."""
        self.source = source
        self.target = target
        self._network = network
        self._receive = receive
        self._last_ms = 0.0
        self._held: deque[bytes | None] = deque()
        self._is_held = False
        self.is_broken = False

    def send(self, frame: bytes | None, api_key: int) -> None:
        """Send a frame, or None for the end of the connection."""
        network = self._network
        loop = network.loop
        delay_ms = network.delay_ms(self.source.number, self.target.number, api_key)
        self._last_ms = max(self._last_ms, loop.now_ms + delay_ms)
        loop.call_later(self._last_ms - loop.now_ms, lambda: self._arrive(frame))

    def _arrive(self, frame: bytes | None) -> None:
        if self._is_held:
            self._held.append(frame)
        elif self._network.holds(self):
            self._is_held = True
            self._held.append(frame)
            self._network.stall(self)
        else:
            self._deliver(frame)

    def go_on(self) -> None:
        """Deliver what was held up, unless the link is cut again."""
        if self._network.holds(self):
            self._network.stall(self)
            return
        self._is_held = False
        held, self._held = self._held, deque()
        for frame in held:
            self._deliver(frame)

    def _deliver(self, frame: bytes | None) -> None:
        if self.is_broken:
            return
        network = self._network
        network.frames += 1
        network.loop.note(
            self.source.number, self.target.number, -1 if frame is None else len(frame)
        )
        self.target.clock.run(lambda: None if self.is_broken else self._receive(frame))


class Connection:
    """One connection, or the attempt at one (``runtime.broker_channels.Transport``)."""

    received_size = 0
    """Frames arrive whole here."""

    def __init__(self, network: Network, source: Host, target: int, owner: TransportOwner) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._owner: TransportOwner | None = owner
        self._serving: Serving | None = None
        self._to: Flow | None = None
        delay_ms = network.delay_ms(source.number, target, -1)
        network.loop.call_later(delay_ms, self._connect)

    @property
    def opener(self) -> int:
        """The number of the host that has opened it."""
        return self._source.number

    def joins(self, one: int, other: int) -> bool:
        """Tell whether it is between these two."""
        return {self._source.number, self._target} == {one, other}

    def _connect(self) -> None:
        network = self._network
        here, there = self._source.number, self._target
        target = network.hosts.get(there)
        cut = (here, there) in network.cuts or (there, here) in network.cuts
        resets = network.unreachable.get((here, there))
        if target is None or target.is_off or cut or resets is False:
            network.loop.call_later(CONNECT_TIMEOUT_MS, lambda: self._lost("timed out"))
        elif target.clock.is_dead or target.accept is None:
            self._lost("connection refused")
        elif resets or (here, there) in network.closed_to:
            self._lost("connection reset by peer")
        elif self._owner is not None:
            self._to = Flow(
                network, self._source, target, self._frame_at_server, opened=(here, there)
            )
            back = Flow(network, target, self._source, self._frame_at_client, opened=(here, there))
            self._serving = Serving(self, target, here, back)
            self._source.connections[self] = None
            target.connections[self] = None
            self._source.clock.run(self._tell_connected)

    def _tell_connected(self) -> None:
        if self._owner is not None:
            self._owner.connected()

    def send(self, outgoing: Outgoing) -> None:
        """Send a request."""
        if self._to is not None:
            frame = joined(outgoing)
            api_key = frame[0] << 8 | frame[1]
            self._network.requests[self._source.number, self._target, api_key] += 1
            self._to.send(frame, api_key)

    def close(self) -> None:
        """Hang up and tell nobody; what is under way still arrives."""
        self._owner = None
        if self._to is not None:
            self._to.send(None, -1)
            self._source.connections.pop(self, None)

    def reset(self) -> None:
        """Break both directions; what is under way is lost."""
        if self._to is not None and self._serving is not None:
            self._to.is_broken = True
            self._serving.break_off()
        self._source.connections.pop(self, None)
        self._lost("connection reset by peer")

    def _lost(self, reason: str) -> None:
        def tell() -> None:
            owner, self._owner = self._owner, None
            if owner is not None:
                owner.closed(reason)

        self._source.clock.run(tell)

    def _frame_at_server(self, frame: bytes | None) -> None:
        assert self._serving is not None
        self._serving.receive(frame)

    def _frame_at_client(self, frame: bytes | None) -> None:
        if frame is None:
            self._source.connections.pop(self, None)
            self._lost("closed by peer")
        elif self._owner is not None:
            try:
                self._owner.frame_received(memoryview(frame))
            except ProtocolError as error:
                self._lost(str(error))


class Serving:
    """The server's end: one request after the other, answers in their order."""

    def __init__(self, connection: Connection, host: Host, peer: int, back: Flow) -> None:
        assert host.accept is not None
        self._connection = connection
        self._host = host
        self._session: ServerSession | None = host.accept(peer)
        self.back = back
        self._waiting: deque[bytes] = deque()
        self._busy = False

    def receive(self, frame: bytes | None) -> None:
        """Take a request, or the end of the connection."""
        if frame is None:
            self.break_off()
        elif self._session is not None:
            self._waiting.append(frame)
            if not self._busy:
                self._serve()

    def break_off(self) -> None:
        """Serve no more."""
        session, self._session = self._session, None
        self._host.connections.pop(self._connection, None)
        self.back.is_broken = True
        if session is not None and not self._host.clock.is_dead:
            session.closed()

    def _serve(self) -> None:
        while self._waiting and self._session is not None:
            frame = self._waiting.popleft()
            api_key = frame[0] << 8 | frame[1]
            try:
                served = self._session.serve(memoryview(bytearray(frame)))
            except (ProtocolError, ConnectionClosedError):
                self._hang_up()
                return
            if isinstance(served, Deferred) and not served.done:
                self._busy = True
                served.on_done(lambda ready: self._served(ready, api_key))  # noqa: B023 - this turn is the last
                return
            self._answer(served.result() if isinstance(served, Deferred) else served, api_key)

    def _served(self, ready: Deferred[Outgoing | None], api_key: int) -> None:
        self._busy = False
        if self._host.clock.is_dead:
            return
        try:
            outgoing = ready.result()
        except (ProtocolError, ConnectionClosedError):
            self._hang_up()
            return
        self._answer(outgoing, api_key)
        self._serve()

    def _answer(self, outgoing: Outgoing | None, api_key: int) -> None:
        if outgoing is not None and self._session is not None:
            self.back.send(joined(outgoing), api_key)

    def _hang_up(self) -> None:
        self.back.send(None, -1)
        session, self._session = self._session, None
        if session is not None:
            session.closed()


def joined(outgoing: Outgoing) -> bytes:
    """Return a frame without its size."""
    whole = b"".join(
        bytes(each) if isinstance(each, IN_MEMORY) else each.read() for each in outgoing.pieces
    )
    return whole[4:]
