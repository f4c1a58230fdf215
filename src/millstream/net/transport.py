"""What a connection sends and receives through: a socket, or TLS on one.

A transport has the methods of :class:`Transport`. Bytes come through ``receive_into``; answers go
through ``send`` and ``flush``, see ``net.writer``. ``watch_readable`` and ``watch_writable`` have
the loop call back as long as there is something to do, so a connection does not know that decrypted
bytes may wait where the socket is silent.

TLS is an ``ssl.SSLObject`` between two memory BIOs. Compared with ``ssl.SSLSocket`` that takes a
sixth less CPU for an answer of 17 KB and a twentieth less for one of a MiB, because the records of
many KB leave by one system call (decision 0085).
"""

from __future__ import annotations

import logging
import socket
import ssl
from asyncio import AbstractEventLoop, Handle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, cast

from millstream import platform
from millstream.net.writer import SHORT_FILE, SocketWriter
from millstream.protocol.outgoing import IN_MEMORY, Payload, Records

log = logging.getLogger(__name__)

SCRATCH_BYTES: Final = 256 * 1024
_SINGLE_BYTES: Final = 16 * 1024
_RECEIVES_AT_ONCE: Final = 4
_STEPS_AT_ONCE: Final = 16
"""How many times the scratch may be encrypted before the loop serves others, some milliseconds: a
peer that reads as fast as this side encrypts always has room for more."""
_MAX_UNASKED_BYTES: Final = 64 * 1024
"""Bytes of the protocol itself (answers to key updates) that a peer may leave unread."""
_MAX_BARREN_BYTES: Final = 64 * 1024
"""Bytes that may come without one that is decrypted: an unfinished record has 16 KiB, and more are
records without content and key updates, which cost this side and bring nothing."""


class Transport(Protocol):
    """One connected, non-blocking stream of bytes."""

    @property
    def receive_into(self) -> Callable[[memoryview], int]:
        """Receives into a buffer and returns how many bytes; 0 at the end of the stream.
        BlockingIOError when nothing has come; another OSError when the stream is broken.
        """

    @property
    def send(self) -> Callable[[list[Records]], bool]:
        """Sends what the socket takes now and keeps the rest; True when nothing is left. OSError
        when the peer is gone.
        """

    @property
    def flush(self) -> Callable[[], bool]:
        """Sends more of what is kept; True when nothing is left."""

    @property
    def pending_bytes(self) -> int:
        """Memory that what is kept takes."""

    def watch_readable(self, callback: Callable[[], None]) -> None:
        """Call back whenever something can be received, until ``unwatch_readable``."""

    def unwatch_readable(self) -> object:
        """Do not call back any more."""

    def watch_writable(self, callback: Callable[[], None]) -> None:
        """Call back whenever more can be sent, until ``unwatch_writable``."""

    def unwatch_writable(self) -> object:
        """Do not call back any more."""

    def close(self) -> None:
        """Close the socket. Whoever watches has to end that first."""

    def peer(self) -> str:
        """Return who is on the other side, for the log."""


class PlainTransport(SocketWriter):
    """A socket without encryption. ``receive_into`` is the socket's own method, so that a
    connection pays nothing for the transport between.
    """

    __slots__ = (
        "receive_into",
        "unwatch_readable",
        "unwatch_writable",
        "watch_readable",
        "watch_writable",
    )

    def __init__(self, sock: socket.socket, loop: AbstractEventLoop) -> None:
        super().__init__(sock)
        fd = sock.fileno()
        self.receive_into: Callable[[memoryview], int] = sock.recv_into
        self.watch_readable: Callable[[Callable[[], None]], None] = partial(loop.add_reader, fd)
        self.unwatch_readable: Callable[[], object] = partial(loop.remove_reader, fd)
        self.watch_writable: Callable[[Callable[[], None]], None] = partial(loop.add_writer, fd)
        self.unwatch_writable: Callable[[], object] = partial(loop.remove_writer, fd)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def peer(self) -> str:
        """Return address and port of the peer."""
        return peer_of(self._socket)


class Scratch:
    """Memory that all TLS transports of a loop share: nothing in it outlives a call."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(SCRATCH_BYTES))


class TlsTransport:
    """TLS on a socket, once the handshake is done.

    Pieces that lie in files are read and encrypted in steps of ``SCRATCH_BYTES``, each when the
    socket has taken the one before: a reader that is slow costs no more memory than one step.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: AbstractEventLoop,
        tls: ssl.SSLObject,
        bios: tuple[ssl.MemoryBIO, ssl.MemoryBIO],
        scratch: Scratch,
    ) -> None:
        self.tls = tls
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._incoming, self._outgoing = bios
        self._scratch = scratch.view
        self._chunks: deque[Records] = deque()
        self._offset = 0
        self._sealed = memoryview(b"")
        """Encrypted bytes that the socket has not taken yet."""
        self._chunk_bytes = 0
        self._readable: Callable[[], None] | None = None
        self._leftover: Handle | None = None
        self._ended = False
        """True once the peer has sent its last record, or one that cannot be read."""
        self._broken = False
        self._barren_bytes = 0
        """Received since the last byte that was decrypted."""

    @property
    def pending_bytes(self) -> int:
        """Memory that what is kept takes: slices of files take none."""
        return self._chunk_bytes + len(self._sealed)

    def receive_into(self, space: memoryview) -> int:
        """Receive decrypted bytes, see ``Transport``."""
        count = self._decrypt_into(space)
        if count is None:
            try:
                count = self._receive_records(space)
            finally:  # a refusal or new keys do not wait until the peer says something else
                if self._outgoing.pending:
                    self._send_unasked()
        elif self._outgoing.pending:
            self._send_unasked()
        if count == len(space) or self._ended:
            self._call_for_leftover()
        return count

    def _receive_records(self, space: memoryview) -> int:
        """Receive until something is decrypted. BlockingIOError when that takes more than the
        socket has, or than is good for others.
        """
        for _ in range(_RECEIVES_AT_ONCE):
            received = self._socket.recv_into(self._scratch)
            if not received:
                return 0
            self._incoming.write(self._scratch[:received])
            count = self._decrypt_into(space)
            if count is not None:
                self._barren_bytes = 0
                return count
            self._barren_bytes += received
            if self._barren_bytes > _MAX_BARREN_BYTES:
                raise self._refused("the peer sends records without content")
        raise BlockingIOError

    def _decrypt_into(self, space: memoryview) -> int | None:
        """Fill ``space`` from what has been received; None when that is not one byte, 0 at the end
        of the stream. What came whole before a fault is served; the next call meets it again.
        """
        count = 0
        size = len(space)
        read = cast("Callable[[int, memoryview], int]", self.tls.read)
        try:
            while count < size:
                got = read(size - count, space[count:])
                if not got:
                    self._ended = True
                    break
                count += got
        except ssl.SSLWantReadError:
            return count or None
        except ssl.SSLError as error:
            self._ended = True
            if not count:
                raise self._broken_by(error) from error
        return count

    def _broken_by(self, error: ssl.SSLError) -> OSError:
        return self._refused(reason_of(error))

    def _refused(self, reason: str) -> OSError:
        self._broken = True
        log.info("closing the connection of %s: TLS: %s", self.peer(), reason)
        return ConnectionResetError(f"TLS: {reason}")

    def _send_unasked(self) -> None:
        """Send what TLS itself has to say, unless an answer is in its way."""
        if len(self._sealed) > _MAX_UNASKED_BYTES + SCRATCH_BYTES:
            raise self._refused("the peer reads nothing")
        self._sealed = memoryview(bytes(self._sealed) + self._outgoing.read())
        with suppress(BlockingIOError, InterruptedError):
            self._sealed = self._sealed[self._socket.send(self._sealed) :]

    def _call_for_leftover(self) -> None:
        """Call back for bytes that are here already: the socket may not become readable for
        them.
        """
        if self._readable is None or self._leftover is not None:
            return
        if self._ended or self.tls.pending() or self._incoming.pending:
            self._leftover = self._loop.call_soon(self._read_leftover)

    def _read_leftover(self) -> None:
        self._leftover = None
        if self._readable is not None:
            self._readable()

    def send(self, chunks: list[Records]) -> bool:
        """Encrypt and send, see ``Transport``."""
        if not self._chunks and not self._sealed and len(chunks) == 1:
            only = chunks[0]
            if isinstance(only, IN_MEMORY) and 0 < len(only) <= _SINGLE_BYTES:
                self._encrypt(only)
                return self.flush()
        for chunk in chunks:
            if len(chunk):
                self._chunks.append(chunk)
                if isinstance(chunk, IN_MEMORY):
                    self._chunk_bytes += len(chunk)
        return self.flush()

    def flush(self) -> bool:
        """Send more of what is kept, see ``Transport``, a few MiB at a time."""
        try:
            for _ in range(_STEPS_AT_ONCE):
                while self._sealed:
                    self._sealed = self._sealed[self._socket.send(self._sealed) :]
                if not self._chunks:
                    return True
                count = self._gather()
                self._encrypt(self._scratch[:count])
        except (BlockingIOError, InterruptedError):
            pass
        return False

    def _encrypt(self, data: bytes | bytearray | memoryview) -> None:
        """Make ``data`` the sealed bytes; none must be left of the ones before."""
        view = memoryview(data)
        try:
            while view:
                view = view[self.tls.write(view) :]
        except ssl.SSLError as error:
            raise self._broken_by(error) from error
        self._sealed = memoryview(self._outgoing.read())

    def _gather(self) -> int:
        """Fill the scratch from the pieces; return how many bytes."""
        scratch = self._scratch
        count = 0
        while self._chunks and count < SCRATCH_BYTES:
            chunk = self._chunks[0]
            step = min(SCRATCH_BYTES - count, len(chunk) - self._offset)
            into = scratch[count : count + step]
            if isinstance(chunk, IN_MEMORY):
                into[:] = memoryview(chunk)[self._offset : self._offset + step]
                self._chunk_bytes -= step
            else:
                self._read(chunk, into)
            count += step
            self._offset += step
            if self._offset == len(chunk):
                self._chunks.popleft()
                self._offset = 0
        return count

    def _read(self, chunk: Payload, into: memoryview) -> None:
        position = chunk.position + self._offset
        while into:
            read = platform.read_into(chunk.fileno(), [into], position)
            if not read:
                self._broken = True
                raise ConnectionResetError(SHORT_FILE)
            into = into[read:]
            position += read

    def watch_readable(self, callback: Callable[[], None]) -> None:
        """Call back for the socket, and for bytes that it has delivered already."""
        self._readable = callback
        self._loop.add_reader(self._fd, callback)
        self._call_for_leftover()

    def unwatch_readable(self) -> None:
        """Do not call back any more."""
        self._readable = None
        self._loop.remove_reader(self._fd)
        if self._leftover is not None:
            self._leftover.cancel()
            self._leftover = None

    def watch_writable(self, callback: Callable[[], None]) -> None:
        """Call back when the socket takes more."""
        self._loop.add_writer(self._fd, callback)

    def unwatch_writable(self) -> None:
        """Do not call back any more."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Tell the peer that nothing follows, where the socket takes it, and close."""
        if not self._broken and not self._sealed:
            with suppress(OSError, ValueError):
                self.tls.unwrap()
            with suppress(OSError):
                self._socket.send(self._outgoing.read())
        self._socket.close()

    def peer(self) -> str:
        """Return address and port of the peer."""
        return peer_of(self._socket)


def reason_of(error: Exception) -> str:
    """Return what went wrong in TLS, in small letters and without the library's own notation."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {error.verify_message}"
    reason = getattr(error, "reason", None)
    if reason in _NOT_TLS:
        return "the peer does not speak TLS"
    return str(reason or error).replace("_", " ").lower()


_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})


def peer_of(sock: socket.socket) -> str:
    """Return address and port of a socket's peer, for the log."""
    try:
        host, port = sock.getpeername()[:2]
    except (OSError, ValueError):
        return "a peer that has gone"
    return f"{host}:{port}"
