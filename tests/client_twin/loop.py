"""A loop with virtual time and seeded chance, and connections that live in memory."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from millstream.client.core.loop import TransportEvents
from millstream.client.core.security import PLAINTEXT
from millstream.client.settings import Address
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import MillstreamError
from millstream.records.crc32c import Buffer

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000


class Timer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Peer(Protocol):
    """The other end of a connection."""

    def accepts(self) -> bool: ...

    def opened(self, connection: Connection) -> None: ...

    def received(self, connection: Connection, data: bytes) -> None: ...


class Network:
    """Which peer listens where, and how long bytes take."""

    def __init__(self) -> None:
        self.peers: dict[Address, Peer] = {}
        self.latency_ms: Callable[[], float] = lambda: 1.0
        self.on_write: Callable[[Connection, bytes], None] | None = None
        self.connections: list[Connection] = []


class TwinLoop:
    """Implements ``ClientLoop``."""

    def __init__(self, seed: int = 0) -> None:
        self.security = PLAINTEXT
        self.chance = random.Random(seed)
        self.secrets = random.Random(f"secrets {seed}")
        self.network = Network()
        self._now_ms = 1000.0
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._soon: deque[Callable[[], None]] = deque()

    def now_ms(self) -> float:
        return self._now_ms

    def wall_clock_ms(self) -> int:
        return EPOCH_MS + int(self._now_ms)

    def random(self) -> float:
        return self.chance.random()

    def random_bytes(self, count: int) -> bytes:
        return self.secrets.randbytes(count)

    def call_at(self, when_ms: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        heapq.heappush(self._timers, (when_ms, next(self._order), timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def connect(self, address: Address, events: TransportEvents) -> Connection:
        return Connection(self, address, events)

    def run_blocking(self, work: Callable[[], T]) -> Deferred[T]:
        cell: Deferred[T] = Deferred()

        def run() -> None:
            try:
                cell.complete(work())
            except MillstreamError as error:
                cell.fail(error)

        self.call_at(self._now_ms + self.network.latency_ms(), run)
        return cell

    # --- running ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Run all that is due now."""
        while True:
            while self._soon:
                self._soon.popleft()()
            if not self._timers or self._timers[0][0] > self._now_ms:
                return
            self._fire()

    def _fire(self) -> None:
        when, _, timer = heapq.heappop(self._timers)
        self._now_ms = max(self._now_ms, when)
        callback, timer.callback = timer.callback, None
        if callback is not None:
            callback()

    def advance(self, duration_ms: float) -> None:
        """Let time pass."""
        end = self._now_ms + duration_ms
        self.settle()
        while self._timers and self._timers[0][0] <= end:
            self._fire()
            self.settle()
        self._now_ms = end

    def run(
        self, waited: Deferred[T] | Coroutine[Deferred[Any], None, T], limit_ms: float = 600_000
    ) -> T:
        """Let time pass until ``waited`` is filled, at most ``limit_ms``; return its value."""
        cell = waited if isinstance(waited, Deferred) else spawn(waited)
        end = self._now_ms + limit_ms
        self.settle()
        while not cell.done:
            assert self._timers, "nothing will ever happen again"
            assert self._timers[0][0] <= end, f"not done after {limit_ms} ms"
            self._fire()
            self.settle()
        return cell.result()


class Connection:
    """Both ends of one connection: the client's transport, and what a peer answers on."""

    def __init__(self, loop: TwinLoop, address: Address, events: TransportEvents) -> None:
        self.loop = loop
        self.address = address
        self.is_open = False
        self.is_closed = False
        self.state: dict[str, Any] = {}
        self._events: TransportEvents | None = events
        self._peer = loop.network.peers.get(address)
        self._there_ms = 0.0
        self._back_ms = 0.0
        loop.network.connections.append(self)
        loop.call_at(loop.now_ms() + self._latency(), self._open)

    def _latency(self) -> float:
        return self.loop.network.latency_ms()

    def _open(self) -> None:
        if self._events is None:
            return
        if self._peer is None or not self._peer.accepts():
            self._end(ConnectionRefusedError(111, "connection refused"))
            return
        self.is_open = True
        self._peer.opened(self)
        self._events.connected()

    # --- the client's end ------------------------------------------------------------------------

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        if self._events is None:
            return
        data = b"".join(pieces)
        self._there_ms = max(self._there_ms, self.loop.now_ms() + self._latency())
        self.loop.call_at(self._there_ms, lambda: self._arrive(data))
        if self.loop.network.on_write is not None:
            self.loop.network.on_write(self, data)
        if on_sent is not None:
            on_sent()

    def close(self) -> None:
        self._events = None
        self._finish()

    # --- the peer's end --------------------------------------------------------------------------

    def _arrive(self, data: bytes) -> None:
        # What was written before the client hung up arrives all the same.
        if self._peer is not None and self.is_open and not self.state.get("cut"):
            self._peer.received(self, data)

    def answer(self, data: bytes, delay_ms: float = 0) -> None:
        self._back_ms = max(self._back_ms, self.loop.now_ms() + delay_ms + self._latency())
        self.loop.call_at(self._back_ms, lambda: self._deliver(data))

    def cut(self, error: OSError | None = None) -> None:
        """Hang up at the peer's end: nothing written from now on arrives, answers are lost."""
        self.state["cut"] = True
        self._end(error)

    def _deliver(self, data: bytes) -> None:
        if self._events is not None and self.is_open and not self.state.get("cut"):
            self._events.received(data)

    def _end(self, error: OSError | None) -> None:
        events, self._events = self._events, None
        self._finish()
        if events is not None:
            events.closed(error)

    def _finish(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            if self in self.loop.network.connections:
                self.loop.network.connections.remove(self)
