"""What not every operating system has, and what is done in its place.

Linux has all of it. macOS and Windows lack some, and ``MILLSTREAM_PORTABLE=1`` in the environment
has Linux do without it too, so that tests cover the other ways. The client uses nothing else that
Windows does not have; the broker still uses more (``docs/status.md``).
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    _FULL_FLUSH = None
else:
    _FULL_FLUSH = getattr(fcntl, "F_FULLFSYNC", None)

SWITCH: Final = "MILLSTREAM_PORTABLE"
"""Environment variable; ``1`` chooses the ways that work on every system."""

IS_PORTABLE: Final = os.environ.get(SWITCH, "").lower() in {"1", "on", "yes", "true"}

CONNECTING: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK})
"""What ``connect_ex`` of a non-blocking socket returns when nothing is wrong. Windows answers
EWOULDBLOCK."""

_NO_FULL_FLUSH: Final = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY})
"""What a file system answers that knows no F_FULLFSYNC: one of a network, or FAT."""

_STEP_BYTES: Final = 256 * 1024


class PortableSelector(selectors.SelectSelector):
    """``select``, which every system has. Windows refuses to wait for no socket at all."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait as ``SelectSelector`` does; without a socket for as long as the time-out says."""
        if self.get_map():
            return super().select(timeout)
        time.sleep(max(timeout or 0, 0))
        return []


def _send_joined(sock: socket.socket, pieces: Sequence[bytes | memoryview]) -> int:
    """Send as many of the pieces as one call takes; return the number of bytes that left."""
    joined = bytearray()
    for piece in pieces:
        joined += memoryview(piece)[: _STEP_BYTES - len(joined)]
        if len(joined) == _STEP_BYTES:
            break
    return sock.send(joined)


def _send_copied(out: int, file: int, position: int, size: int) -> int:
    """Copy a part of a file to a socket, as ``os.sendfile`` does; return 0 at the file's end."""
    data = os.pread(file, min(size, _STEP_BYTES), position)
    return os.write(out, data) if data else 0


def _gather(sock: socket.socket, pieces: Sequence[bytes | memoryview]) -> int:
    return sock.sendmsg(pieces)


def _read_copied(file: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
    """Read into one buffer or more as ``os.preadv`` does; returns the number of bytes."""
    data = os.pread(file, sum(map(len, buffers)), position)
    start = 0
    for buffer in buffers:
        piece = data[start : start + len(buffer)]
        memoryview(buffer)[: len(piece)] = piece
        start += len(piece)
    return len(data)


def _flush_drive(descriptor: int) -> None:
    """Flush as macOS has it: its fsync leaves data in the drive's cache, F_FULLFSYNC does not."""
    try:
        fcntl.fcntl(descriptor, _FULL_FLUSH or 0)
    except OSError as error:
        if error.errno not in _NO_FULL_FLUSH:
            raise
        os.fsync(descriptor)


def make_selector() -> selectors.BaseSelector:
    """Return the best selector of this system: epoll, kqueue, or select."""
    best = selectors.DefaultSelector()
    if not IS_PORTABLE and not isinstance(best, selectors.SelectSelector):
        return best
    best.close()
    return PortableSelector()


send_pieces: Final[Callable[[socket.socket, Sequence[bytes | memoryview]], int]] = (
    _gather if hasattr(socket.socket, "sendmsg") and not IS_PORTABLE else _send_joined
)
"""Send pieces one behind the other, without waiting; returns how many bytes the socket took."""

send_file: Final[Callable[[int, int, int, int], int]] = (
    os.sendfile if hasattr(os, "sendfile") and not IS_PORTABLE else _send_copied
)
"""``os.sendfile``: descriptors of socket and file, position and size; returns the bytes sent."""

read_into: Final[Callable[[int, Sequence[bytearray | memoryview], int], int]] = (
    os.preadv if hasattr(os, "preadv") and not IS_PORTABLE else _read_copied
)
"""``os.preadv``: descriptor, buffers and position; returns how many bytes were read."""

NO_WAIT: Final[int] = 0 if IS_PORTABLE else getattr(os, "RWF_NOWAIT", 0)
"""Flag of ``os.preadv`` to fail where it would wait for a disk; 0 where there is none."""

flush_file: Final[Callable[[int], None]] = os.fsync if _FULL_FLUSH is None else _flush_drive
"""Make a file or a directory safe from a power failure."""

flush_data: Final[Callable[[int], None]] = (
    os.fdatasync
    if _FULL_FLUSH is None and hasattr(os, "fdatasync") and not IS_PORTABLE
    else flush_file
)
"""Flush a file's data and size; its times as well where they cannot be left out."""


def after_fork_in_child(callback: Callable[[], None]) -> None:
    """Have ``callback`` run in each forked child; Windows has no fork, and nothing to run."""
    register = getattr(os, "register_at_fork", None)
    if register is not None:
        register(after_in_child=callback)
