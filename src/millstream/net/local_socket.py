"""Sockets between processes of one machine and one user: frames in, frames out, nothing blocks.

A socket lies in a directory, with mode 0600; a peer of another user is turned away even where the
directory would let it in. The kernel takes paths of 107 bytes at most: a longer one is reached
through a short name of its directory, so data directories may lie as deep as they like.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from millstream import platform
from millstream.model.errors import ConfigError, ProtocolError
from millstream.net.transport import PlainTransport
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing

log = logging.getLogger(__name__)

MAX_PATH_BYTES: Final = 100
"""Every system takes a socket path of so many bytes: Linux 107, macOS 103."""
BACKLOG: Final = 1_024


class ConnectionOwner(Protocol):
    """Whom a connection tells; never inside a call of the connection."""

    def connected(self) -> None:
        """The other side has taken the connection."""

    def frame_received(self, frame: memoryview) -> None:
        """One whole frame without its size, valid until this returns. ProtocolError closes."""

    def closed(self, reason: str, *, by_peer: bool) -> None:
        """The connection is gone, or never came to be; ``by_peer`` when the other side ended it."""


class LocalConnection:
    """One connected socket. ``close`` does not call the owner."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        sock: socket.socket,
        *,
        max_frame_bytes: int,
    ) -> None:
        self._loop = loop
        self._frames = FrameReader(max_frame_bytes)
        self._transport = PlainTransport(sock, loop)
        self._owner: ConnectionOwner | None = None
        self._writing = False
        self._closed = False

    @property
    def pending_bytes(self) -> int:
        """Bytes that were sent and that the other side has not taken yet."""
        return self._transport.pending_bytes

    def begin(self, owner: ConnectionOwner) -> None:
        """Pass what arrives to ``owner`` from now on."""
        self._owner = owner
        self._transport.watch_readable(self._on_readable)

    def send(self, outgoing: Outgoing) -> None:
        """Send one frame; what the socket does not take now follows."""
        if self._closed:
            return
        try:
            done = self._transport.send(outgoing.pieces)
        except OSError as error:
            # Later: the sender must not be called back inside its own call. What the peer has sent
            # before it ended is read first.
            self._loop.call_soon(self._fail, _reason(error), _is_peers(error))
            return
        if not done and not self._writing:
            self._writing = True
            self._transport.watch_writable(self._on_writable)

    def close(self) -> None:
        """Hang up; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._transport.unwatch_readable()
        self._transport.unwatch_writable()
        self._transport.close()

    def _on_readable(self) -> None:
        try:
            count = self._transport.receive_into(self._frames.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(_reason(error), _is_peers(error))
            return
        if count == 0:
            self._fail("the other side closed the connection", True)
            return
        self._frames.received(count)
        assert self._owner is not None
        try:
            while not self._closed and (frame := self._frames.next_frame()) is not None:
                self._owner.frame_received(frame)
        except ProtocolError as error:
            self._fail(str(error), False)

    def _on_writable(self) -> None:
        try:
            done = self._transport.flush()
        except OSError as error:
            self._fail(_reason(error), _is_peers(error))
            return
        if done:
            self._transport.unwatch_writable()
            self._writing = False

    def _fail(self, reason: str, by_peer: bool) -> None:
        if not self._closed:
            self.close()
            assert self._owner is not None
            self._owner.closed(reason, by_peer=by_peer)


class LocalClient:
    """A connection that is being opened, then a :class:`LocalConnection`."""

    def __init__(
        self, loop: AbstractEventLoop, path: Path, owner: ConnectionOwner, *, max_frame_bytes: int
    ) -> None:
        self._owner = owner
        self._closed = False
        self._connection: LocalConnection | None = None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        try:
            with reachable(path) as address:
                sock.connect(address)
        except OSError as error:
            sock.close()
            loop.call_soon(self._not_connected, _reason(error))
            return
        self._connection = LocalConnection(loop, sock, max_frame_bytes=max_frame_bytes)
        loop.call_soon(self._connected)

    @property
    def pending_bytes(self) -> int:
        """Bytes that were sent and that the other side has not taken yet."""
        return 0 if self._connection is None else self._connection.pending_bytes

    def send(self, outgoing: Outgoing) -> None:
        """Send one frame, once connected."""
        if self._connection is not None:
            self._connection.send(outgoing)

    def close(self) -> None:
        """Hang up; closing twice is harmless."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> None:
        if not self._closed:
            assert self._connection is not None
            self._connection.begin(self._owner)
            self._owner.connected()

    def _not_connected(self, reason: str) -> None:
        if not self._closed:
            self._owner.closed(reason, by_peer=True)


class LocalListener:
    """A socket in a directory that takes connections of this user. A socket that is there already
    is replaced: whoever listens makes sure that nobody else does.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        path: Path,
        accept: Callable[[LocalConnection], ConnectionOwner],
        *,
        max_frame_bytes: int,
    ) -> None:
        """Listen; OSError where that fails, ConfigError where the path is too long."""
        self._loop = loop
        self._path = path
        self._accept = accept
        self._max_frame_bytes = max_frame_bytes
        # Under a name of its own until it listens: nobody finds a socket that refuses.
        beginning = path.with_name(f"{path.name}.{os.getpid()}")
        beginning.unlink(missing_ok=True)  # of a process that had this id and was killed here
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            before = os.umask(0o177)
            try:
                with reachable(beginning) as address:
                    self._socket.bind(address)
            finally:
                os.umask(before)
            self._socket.listen(BACKLOG)
            beginning.replace(path)
        except BaseException:
            self._socket.close()
            beginning.unlink(missing_ok=True)
            raise
        loop.add_reader(self._socket.fileno(), self._on_readable)

    def close(self) -> None:
        """Stop to listen, and remove the socket."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _on_readable(self) -> None:
        try:
            sock, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor is left: the connection waits in the backlog
            log.warning("a connection cannot be taken: %s", _reason(error))
            self._loop.remove_reader(self._socket.fileno())
            self._loop.call_later(0.1, self._listen_again)
            return
        if not _is_same_user(sock):
            log.warning("a connection of another user is turned away")
            sock.close()
            return
        sock.setblocking(False)
        connection = LocalConnection(self._loop, sock, max_frame_bytes=self._max_frame_bytes)
        connection.begin(self._accept(connection))

    def _listen_again(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.add_reader(self._socket.fileno(), self._on_readable)


@contextmanager
def reachable(path: Path) -> Iterator[str]:
    """Give an address of a socket that the kernel takes, however long its path is; ConfigError
    where even the short one is too long.
    """
    whole = os.path.abspath(path)
    if len(os.fsencode(whole)) <= MAX_PATH_BYTES:
        yield whole
        return
    with platform.short_name(os.path.dirname(whole)) as directory:
        address = os.path.join(directory, os.path.basename(whole))
        if len(os.fsencode(address)) > MAX_PATH_BYTES:
            raise ConfigError(
                f"{whole}: the path of a socket may have {MAX_PATH_BYTES} bytes here, and "
                f"{address} is too long as well: choose a directory with a shorter path, or set "
                "TMPDIR to one"
            )
        yield address


def _is_same_user(sock: socket.socket) -> bool:
    """True for a peer of this user, or root; where the system does not tell, the mode decides."""
    try:
        user = platform.peer_user(sock)
    except OSError:
        return False
    return user is None or user in (0, os.geteuid())


def _is_peers(error: OSError) -> bool:
    return error.errno in (errno.EPIPE, errno.ECONNRESET)


def _reason(error: OSError) -> str:
    return str(error) if error.errno is None else os.strerror(error.errno).lower()
