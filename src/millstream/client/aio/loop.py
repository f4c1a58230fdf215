"""``core.loop.ClientLoop`` on an asyncio event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from millstream.client.core.loop import TransportEvents
from millstream.client.core.security import PLAINTEXT, Security
from millstream.client.errors import ForkedError
from millstream.client.selector_loop import literal, no_address
from millstream.client.settings import Address
from millstream.client.socket_transport import ADDRESS_PATIENCE_MS
from millstream.model.deferred import Deferred
from millstream.records.crc32c import Buffer

T = TypeVar("T")

_RECEIVE_BYTES: Final = 32 * 1024
"""The read size between responses; the rest of a response is read into its own buffer."""


class AsyncioLoop:
    """Created inside a running event loop, and used only on it."""

    def __init__(
        self,
        *,
        send_bytes: int = -1,
        receive_bytes: int = -1,
        security: Security = PLAINTEXT,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        sasl = security.sasl
        if sasl is not None:
            security = replace(security, sasl=sasl.awaiting(self._wait_for))
        self.security = security
        self._sizes = ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes))
        self._process_id = os.getpid()
        self._attempts: set[asyncio.Task[None]] = set()
        self._transports: set[AsyncioTransport] = set()

    def check_process(self) -> None:
        """Raise ForkedError in a process that the loop was not made in."""
        if os.getpid() != self._process_id:
            raise ForkedError("this client was made before the process forked")

    def now_ms(self) -> float:
        """Return the event loop's time in milliseconds."""
        return self._loop.time() * 1000

    def wall_clock_ms(self) -> int:
        """Return milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def random(self) -> float:
        """Return a number from 0 up to 1."""
        return random.random()

    def random_bytes(self, count: int) -> bytes:
        """Return bytes from the system's randomness."""
        return os.urandom(count)

    def call_at(self, when_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Run ``callback`` at a time."""
        return self._loop.call_at(when_ms / 1000, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after the present callback."""
        self._loop.call_soon(callback)

    def connect(self, address: Address, events: TransportEvents) -> AsyncioTransport:
        """Begin to connect."""
        transport = AsyncioTransport(self, events)
        self._transports.add(transport)
        task = self._loop.create_task(self._open(address, transport))
        self._attempts.add(task)
        transport.attempt = task
        task.add_done_callback(self._attempts.discard)
        return transport

    def run_blocking(self, work: Callable[[], T]) -> Deferred[T]:
        """Run ``work`` on a thread of its own."""
        cell: Deferred[T] = Deferred()

        def run() -> None:
            settle: Callable[[], None]
            try:
                value = work()
            except BaseException as error:
                settle = partial(cell.fail, error)
            else:
                settle = partial(cell.complete, value)
            with contextlib.suppress(RuntimeError):  # the event loop was closed meanwhile
                self._loop.call_soon_threadsafe(settle)

        threading.Thread(target=run, name="millstream-helper", daemon=True).start()
        return cell

    def _wait_for(self, awaitable: object) -> object:
        """Wait, on a thread of :meth:`run_blocking`, for what a user's function returned."""

        async def run() -> object:
            return await cast("Awaitable[object]", awaitable)

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    async def _open(self, address: Address, transport: AsyncioTransport) -> None:
        try:
            handle = await self._connected(address)
            try:
                await self._loop.create_connection(lambda: transport, sock=handle)
            except BaseException:
                handle.close()
                raise
        except OSError as error:
            transport.connection_lost(error)

    async def _connected(self, address: Address) -> socket.socket:
        """Connect to the first of a host's addresses that answers (``SocketTransport``)."""
        found: Sequence[tuple[int, Any]] | None = literal(address)
        if found is None:
            try:
                infos = await self._loop.getaddrinfo(
                    address.host, address.port, type=socket.SOCK_STREAM
                )
            except UnicodeError as error:
                raise no_address(error) from error
            found = [(info[0], info[4]) for info in infos]
        failure = OSError(errno.EADDRNOTAVAIL, "the name has no address")
        for left, (family, place) in zip(range(len(found) - 1, -1, -1), found, strict=True):
            try:
                return await self._attempt(family, place, is_last=left == 0)
            except OSError as error:  # TimeoutError is one
                failure = error
        raise failure

    async def _attempt(self, family: int, place: Any, *, is_last: bool) -> socket.socket:
        handle = socket.socket(family, socket.SOCK_STREAM)
        try:
            handle.setblocking(False)
            for option, size in self._sizes:
                if size > 0:
                    handle.setsockopt(socket.SOL_SOCKET, option, size)
            patience_s = None if is_last else ADDRESS_PATIENCE_MS / 1000
            await asyncio.wait_for(self._loop.sock_connect(handle, place), patience_s)
        except BaseException:
            handle.close()
            raise
        return handle

    def forget(self, transport: AsyncioTransport) -> None:
        """Drop a transport that was closed."""
        self._transports.discard(transport)

    def future(self, waited: Deferred[T]) -> asyncio.Future[T]:
        """Return an asyncio future that follows a Deferred."""
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(source: Deferred[T]) -> None:
            if future.done():
                return
            try:
                value = source.result()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)

        waited.on_done(settle)
        return future

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        ends = [transport.end for transport in self._transports if transport.is_open]
        for transport in list(self._transports):
            transport.close()
        attempts = list(self._attempts)
        for task in attempts:
            task.cancel()
        await asyncio.gather(*attempts, *ends, return_exceptions=True)


class AsyncioTransport(asyncio.BufferedProtocol):
    """One connection; data written before it is established is sent first."""

    def __init__(self, loop: AsyncioLoop, events: TransportEvents) -> None:
        self.attempt: asyncio.Task[None] | None = None
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = loop
        self._events: TransportEvents | None = events
        self._transport: asyncio.Transport | None = None
        self._chunk = memoryview(bytearray(_RECEIVE_BYTES))
        self._room: memoryview | None = None
        self._told_when_sent: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """True while a socket is open."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Notify the owner; a connection established too late is dropped."""
        # Its class is not checked: uvloop's transports have their own.
        self._transport = transport = cast(asyncio.Transport, transport)
        # ``pause_writing`` is called at once, and ``resume_writing`` when the buffer is empty.
        transport.set_write_buffer_limits(high=0)
        if self._events is None:
            transport.abort()
        else:
            self._events.connected()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes: that of a partial response, or a chunk."""
        self._room = None if self._events is None else self._events.room
        return self._chunk if self._room is None else self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes on."""
        room, self._room = self._room, None
        if self._events is None:
            return
        if room is None:
            self._events.received(bytes(self._chunk[:nbytes]))
        else:
            self._events.filled(nbytes)

    def connection_lost(self, error: Exception | None) -> None:
        """Notify the owner, unless it closed the connection itself."""
        events, self._events = self._events, None
        self._transport = None
        self._told_when_sent.clear()
        self._loop.forget(self)
        if not self.end.done():
            self.end.set_result(None)
        if events is not None:
            events.closed(error if isinstance(error, OSError) else None)

    def write(self, pieces: Sequence[Buffer], on_sent: Callable[[], None] | None = None) -> None:
        """Send the pieces in order."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.writelines(pieces)
        if on_sent is None:
            return
        if self._transport.get_write_buffer_size():
            # ``writelines`` of Python 3.12.0 to 3.12.8 and of 3.13.0 and 3.13.1 does not pause
            # (CVE-2024-12254), so nothing would be resumed; this pauses where it has to be.
            self._transport.set_write_buffer_limits(high=0)
            self._told_when_sent.append(on_sent)
        else:
            on_sent()

    def resume_writing(self) -> None:
        """All written data was sent."""
        told, self._told_when_sent = self._told_when_sent, []
        for on_sent in told:
            on_sent()

    def close(self) -> None:
        """Hang up."""
        self._events = None
        self._told_when_sent.clear()
        if self._transport is not None:
            self._transport.abort()
        elif self.attempt is not None:
            self.attempt.cancel()
            self._loop.forget(self)
