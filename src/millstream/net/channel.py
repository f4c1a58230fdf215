"""A connection that this broker opened to another one: frames out, frames in.

What the frames mean is the owner's business (``runtime.broker_channels``).
"""

from __future__ import annotations

import errno
import os
import socket
from asyncio import AbstractEventLoop, Task, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final, Protocol, TypeAlias

from millstream.model.errors import ProtocolError
from millstream.net.tls_handshake import TlsHandshake
from millstream.net.transport import PlainTransport, Scratch, TlsTransport, Transport
from millstream.platform import CONNECTING
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing

_Address: TypeAlias = tuple[str | int | bytes, ...]

MAX_FRAME_BYTES: Final = 1 << 30
ADDRESS_PATIENCE_SECONDS: Final = 0.5
"""How long an address of a host is waited for that has others: one that loses every packet must not
keep the broker from the next one."""

HANDSHAKE_SECONDS: Final = 10.0

_REFUSED: Final = os.strerror(errno.ECONNREFUSED).lower()


class ChannelOwner(Protocol):
    """The owner of a channel, called when the channel opens or ends. ``close`` does not call it."""

    def connected(self) -> None:
        """The other side has taken the connection."""

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its size, valid until this returns. ProtocolError closes."""

    def closed(self, reason: str) -> None:
        """The channel is gone, or never came to be."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How channels of a broker with TLS between brokers encrypt: ``context()`` is the one in force,
    whose certificates may have been replaced since the last connection.
    """

    context: Callable[[], SSLContext]
    scratch: Scratch


class Channel:
    """A non-blocking socket on the loop; it connects as soon as it is made, to one address of the
    host after the other. The connection counts as refused only when all of them refuse it: a
    process that listens on one of several is not gone.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        host: str,
        port: int,
        owner: ChannelOwner,
        tls: ClientTls | None = None,
    ) -> None:
        self.received_size = 0
        """How many bytes have arrived, of frames that are not complete too."""
        self._loop = loop
        self._owner = owner
        self._frames = FrameReader(MAX_FRAME_BYTES)
        self._socket: socket.socket | None = None
        self._transport: Transport | None = None
        self._handshake: TlsHandshake | None = None
        self._tls = tls
        self._host = host
        self._writing = False
        self._closed = False
        self._addresses: list[tuple[int, _Address]] = []
        self._failure: str | None = None
        self._patience: TimerHandle | None = None
        self._resolving: Task[None] | None = None
        numeric = _numeric_address(host, port)
        if numeric is None:
            self._resolving = loop.create_task(self._resolve(host, port))
        else:
            self._addresses.append(numeric)
            # Later: the owner must have the channel before it is called with the outcome.
            loop.call_soon(self._try_next)

    def send(self, outgoing: Outgoing) -> None:
        """Send one frame, once connected; what the socket does not take now follows."""
        if self._closed:
            return
        assert self._transport is not None, "a frame was sent before the channel was connected"
        try:
            done = self._transport.send(outgoing.pieces)
        except OSError as error:
            # Later: the sender must not be called back inside its own call.
            self._loop.call_soon(self._fail, _reason(error))
            return
        if not done and not self._writing:
            self._writing = True
            self._transport.watch_writable(self._on_writable)

    def close(self) -> None:
        """Hang up; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        if self._resolving is not None:
            self._resolving.cancel()
            self._resolving = None
        self._drop_socket()

    def _drop_socket(self) -> None:
        self._end_patience()
        if self._handshake is not None:
            self._handshake.close()
            self._handshake = self._socket = None
        if self._transport is not None:
            self._transport.unwatch_readable()
            self._transport.unwatch_writable()
            self._transport.close()
            self._transport = self._socket = None
        if self._socket is None:
            return
        self._loop.remove_reader(self._fileno)
        self._loop.remove_writer(self._fileno)
        self._socket.close()
        self._socket = None

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @property
    def _fileno(self) -> int:
        assert self._socket is not None
        return self._socket.fileno()

    async def _resolve(self, host: str, port: int) -> None:
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            self._resolving = None
            self._fail(_reason(error))
            return
        except ValueError:  # no part of a name may be empty, or longer than 63 letters
            self._resolving = None
            self._fail(f"{host!r} is not a host name")
            return
        self._resolving = None
        # The same address may be found twice, as by two lines of /etc/hosts.
        self._addresses = list(dict.fromkeys((family, each) for family, *_, each in found))
        self._try_next()

    def _try_next(self) -> None:
        """Connect to the next address; after the last one, fail with the reason."""
        while not self._closed:
            self._drop_socket()
            if not self._addresses:
                self._fail(self._failure or "the name has no address")
                return
            try:
                self._connect(*self._addresses.pop(0))
            except OSError as error:
                self._note_failure(_reason(error))
                continue
            if self._addresses:
                self._patience = self._loop.call_later(ADDRESS_PATIENCE_SECONDS, self._give_up)
            return

    def _give_up(self) -> None:
        self._note_failure("timed out")
        self._try_next()

    def _note_failure(self, reason: str) -> None:
        if self._failure in (None, _REFUSED):
            self._failure = reason

    def _connect(self, family: int, address: _Address) -> None:
        sock = self._socket = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failure = sock.connect_ex(address)
        if failure not in CONNECTING:
            raise OSError(failure, os.strerror(failure))
        self._loop.add_writer(sock.fileno(), self._on_connected)

    def _on_connected(self) -> None:
        sock = self._socket
        assert sock is not None
        self._loop.remove_writer(sock.fileno())
        failure = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failure:
            self._note_failure(os.strerror(failure).lower())
            self._try_next()
            return
        self._end_patience()
        if self._tls is None:
            self._begin(PlainTransport(sock, self._loop))
            return
        self._patience = self._loop.call_later(
            HANDSHAKE_SECONDS, self._fail, "the TLS handshake timed out"
        )
        self._handshake = TlsHandshake(
            sock,
            loop=self._loop,
            context=self._tls.context(),
            scratch=self._tls.scratch,
            on_done=self._shaken,
            on_failed=self._fail,
            server_name=self._host,
        )

    def _shaken(self, transport: TlsTransport) -> None:
        self._handshake = None
        self._end_patience()
        self._begin(transport)

    def _begin(self, transport: Transport) -> None:
        self._transport = transport
        transport.watch_readable(self._on_readable)
        self._owner.connected()

    def _on_readable(self) -> None:
        assert self._transport is not None
        try:
            count = self._transport.receive_into(self._frames.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(_reason(error))
            return
        if count == 0:
            self._fail("the other side closed the connection")
            return
        self.received_size += count
        self._frames.received(count)
        try:
            while not self._closed and (frame := self._frames.next_frame()) is not None:
                self._owner.frame_received(frame)
        except ProtocolError as error:
            self._fail(str(error))

    def _on_writable(self) -> None:
        assert self._transport is not None
        try:
            done = self._transport.flush()
        except OSError as error:
            self._fail(_reason(error))
            return
        if done:
            self._transport.unwatch_writable()
            self._writing = False

    def _fail(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._owner.closed(reason)


class LoopNetwork:
    """Opens channels over TCP on the broker's loop, with TLS where ``tls`` is given."""

    def __init__(self, loop: AbstractEventLoop, tls: ClientTls | None = None) -> None:
        self._loop = loop
        self._tls = tls

    def open(self, host: str, port: int, owner: ChannelOwner) -> Channel:
        """Begin to connect; the owner is called with the outcome later, never within this call."""
        return Channel(self._loop, host=host, port=port, owner=owner, tls=self._tls)


def _numeric_address(host: str, port: int) -> tuple[int, _Address] | None:
    """Return family and address of a numeric host; None when the name has to be looked up."""
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
        )
    except (OSError, ValueError):
        return None
    return found[0][0], found[0][4]


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno is None:
        return str(error)
    return os.strerror(error.errno).lower()
