"""What not every operating system has, and what is done in its place.

Linux has all of it. macOS and Windows lack some, and ``MILLSTREAM_PORTABLE=1`` in the environment
has Linux do without it too, so that tests cover the other ways. The broker needs what Linux and
macOS have in common (:data:`RUNS_BROKERS`); the client and its commands run on Windows as well.
"""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import struct
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

try:
    import fcntl
    import resource
except ImportError:  # Windows
    _has_locks = False
    _FULL_FLUSH = None
else:
    _has_locks = True
    _FULL_FLUSH = getattr(fcntl, "F_FULLFSYNC", None)

if TYPE_CHECKING:
    import asyncio
    import subprocess

RUNS_BROKERS: Final = _has_locks
"""True where a broker can run: it needs locks of files as Java takes them, and signals."""

SWITCH: Final = "MILLSTREAM_PORTABLE"
"""Environment variable; ``1`` chooses the ways that work on every system."""

IS_PORTABLE: Final = os.environ.get(SWITCH, "").lower() in {"1", "on", "yes", "true"}

IS_LINUX: Final = sys.platform == "linux" and not IS_PORTABLE
"""True where what only Linux has may be used."""

_TELLS_OF_FAILED_WRITES: Final = (5, 8)
"""The Linux whose ``syncfs`` does."""


def hides_failed_writes(release: str) -> bool:
    """Return True for a Linux of before 5.8, by its release: there ``syncfs`` answers that all is
    well where the data of a file could not be written.
    """
    major, _, rest = release.partition(".")
    minor = rest.partition(".")[0].partition("-")[0]
    known = major.isdecimal() and minor.isdecimal()
    return not known or (int(major), int(minor)) < _TELLS_OF_FAILED_WRITES


FLUSHES_FILES_ONLY: Final = IS_LINUX and hides_failed_writes(os.uname().release)
"""True where the flush of a volume would hide that a file's data were lost."""

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


def _send_joined(
    sock: socket.socket, pieces: Sequence[bytes | bytearray | memoryview], flags: int = 0
) -> int:
    """Send as many of the pieces as one call takes; return the number of bytes that left."""
    joined = bytearray()
    for piece in pieces:
        joined += memoryview(piece)[: _STEP_BYTES - len(joined)]
        if len(joined) == _STEP_BYTES:
            break
    return sock.send(joined, flags)


def _send_copied(out: int, file: int, position: int, size: int) -> int:
    """Copy a part of a file to a socket, as ``os.sendfile`` does; return 0 at the file's end."""
    data = os.pread(file, min(size, _STEP_BYTES), position)
    return os.write(out, data) if data else 0


def _gather(
    sock: socket.socket, pieces: Sequence[bytes | bytearray | memoryview], flags: int = 0
) -> int:
    return sock.sendmsg(pieces, (), flags)


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


send_pieces: Final = (
    _gather if hasattr(socket.socket, "sendmsg") and not IS_PORTABLE else _send_joined
)
"""Send pieces one behind the other, without waiting; returns how many bytes the socket took."""

MORE: Final[int] = 0 if IS_PORTABLE else getattr(socket, "MSG_MORE", 0)
"""Flag of a send that is followed by another: both may share packets. 0 where there is none."""

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


# --- files and directories -----------------------------------------------------------------------

BOOT_ID_FILE: Final = "" if IS_PORTABLE else "/proc/sys/kernel/random/boot_id"
"""The file that tells one start of the machine from the next; "" where there is none."""

DIRECTORY: Final[int] = getattr(os, "O_DIRECTORY", 0)
"""Flag of ``os.open`` for a directory."""

_DESCRIPTORS: Final = "/proc/self/fd"

_FLOCK_LAYOUTS: Final[Mapping[str, tuple[str, tuple[int, int, int]]]] = {
    "linux": ("@hhqqi4x", (0, 1, 4)),
    "darwin": ("@qqihh", (3, 4, 2)),
}
"""``struct flock`` on 64 bits, and which of its fields are type, whence and process."""


def flush_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory safe. Windows opens no directories, and keeps them in its file
    system's journal.
    """
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY | DIRECTORY)
    try:
        flush_file(descriptor)
    finally:
        os.close(descriptor)


def volume_flush() -> Callable[[int], int] | None:
    """Return ``syncfs``, which flushes the whole volume of a descriptor and returns 0; None where
    there is none that tells of all failures.
    """
    if not IS_LINUX or FLUSHES_FILES_ONLY:
        return None
    import ctypes

    function: Callable[[int], int] = ctypes.CDLL(None).syncfs
    return function


hand_to_drive: Final[Callable[[int], None]] = os.fsync
"""Have a file leave the page cache. On macOS it may lie in the drive's cache then, which a later
:func:`flush_file` of any file of the drive empties.
"""


def read_at(descriptor: int, size: int, position: int) -> bytes:
    """``os.pread``; where there is none, the descriptor's own position moves."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, position)
    os.lseek(descriptor, position, os.SEEK_SET)
    return os.read(descriptor, size)


def descriptor_path(descriptor: int) -> str | None:
    """Return the path of an open file; None for a pipe or a socket, and where the system does not
    tell it.
    """
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None
    return path if path.startswith("/") else None


@contextmanager
def private_file(data: bytes) -> Iterator[str]:
    """Give the name of a file with ``data`` in it, for a library that wants a name: one in memory
    where the system has such files, else one that only this user reads. It is gone afterwards.
    """
    create = None if IS_PORTABLE else getattr(os, "memfd_create", None)
    if create is not None and os.path.isdir(_DESCRIPTORS):
        with os.fdopen(create("millstream"), "wb") as file:
            file.write(data)
            file.flush()
            yield f"{_DESCRIPTORS}/{file.fileno()}"
        return
    import tempfile

    descriptor, name = tempfile.mkstemp(prefix="millstream-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        yield name
    finally:
        os.unlink(name)


@contextmanager
def short_name(directory: str) -> Iterator[str]:
    """Give a short name of a directory, for an address that must not be long: by a descriptor of
    it, or by a symbolic link.
    """
    if IS_LINUX and os.path.isdir(_DESCRIPTORS):
        descriptor = os.open(directory, os.O_RDONLY | DIRECTORY)
        try:
            yield f"{_DESCRIPTORS}/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="ms-") as place:  # nobody else may enter it
        link = os.path.join(place, "d")
        os.symlink(directory, link)
        yield link


def lock_records(descriptor: int) -> None:
    """Lock all bytes of a file, as Java does; OSError when another process has. The lock is the
    process's, and goes when it closes any descriptor of the file.
    """
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def record_lock_holder(descriptor: int) -> int | None:
    """Return the id of the process that has locked bytes of a file, without locking any. None when
    nobody has, and where the answer of the system is not known.
    """
    if sys.platform not in _FLOCK_LAYOUTS:
        return None
    form, (kind, whence, process) = _FLOCK_LAYOUTS[sys.platform]
    fields = [0] * 5
    fields[kind], fields[whence] = fcntl.F_WRLCK, os.SEEK_SET
    layout = struct.Struct(form)
    try:
        answer = layout.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, layout.pack(*fields)))
    except (OSError, struct.error):
        return None
    return None if answer[kind] == fcntl.F_UNLCK else int(answer[process])


def lock_file(descriptor: int, *, waits: bool = True) -> None:
    """Lock a file for everybody who has this opening of it (``flock``); OSError where it cannot be
    locked, and, without ``waits``, when another has.
    """
    if not RUNS_BROKERS:
        raise OSError(errno.ENOTSUP, "this system has no locks of files")
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def unlock_file(descriptor: int) -> None:
    """Undo :func:`lock_file`."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


_MANY_FILES: Final = (1 << 20, 10_240)
"""What is tried where there is no hard limit: macOS says so, and takes the second at most."""


def raise_open_file_limit() -> int:
    """Raise the soft limit of open files as far as the system lets it; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MANY_FILES[0]
    for wanted in _MANY_FILES if hard == resource.RLIM_INFINITY else (hard,):
        if wanted > soft:
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return wanted
    return soft


# --- sockets and pipes ---------------------------------------------------------------------------

_CREDENTIALS: Final = struct.Struct("3i")


def peer_user(sock: socket.socket) -> int | None:
    """Return the id of the user at the other end of a local socket; None where the system does not
    tell. OSError where it should and does not.
    """
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or not IS_LINUX:
        return None
    _, user, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(user)


def widen_pipe(descriptor: int, size: int) -> None:
    """Have a pipe take more bytes before a writer waits, where the system can and lets us."""
    command = getattr(fcntl, "F_SETPIPE_SZ", None)
    if command is not None and IS_LINUX:
        with suppress(OSError):
            fcntl.fcntl(descriptor, command, size)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where it is installed, which takes a third less CPU per request, else
    one on the best selector; on ``poll`` with the portable ways, for there may be many sockets.
    """
    import asyncio

    if IS_PORTABLE:
        make = getattr(selectors, "PollSelector", PortableSelector)
        return asyncio.SelectorEventLoop(make())
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


# --- processes -----------------------------------------------------------------------------------

CAN_PIN: Final = hasattr(os, "sched_setaffinity") and not IS_PORTABLE
"""True where a process can be pinned to a core."""

_PR_SET_PDEATHSIG: Final = 1
_WATCH: Final = 'read -r over || kill -TERM "$0"'
"""For a shell beside a child: it reads a word when the child is over, and the end of its input when
the parent is.
"""


def usable_cores() -> list[int]:
    """Return the cores that this process may use."""
    if CAN_PIN:
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def end_with_parent(parent: int, number: int) -> None:
    """Have the system send this process a signal when its parent ends, however that ends, where the
    system can; a process whose parent has gone already ends at once.
    """
    if IS_LINUX:
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def before_exec(core: int | None = None) -> Callable[[], None] | None:
    """Return what a child does between fork and exec (``preexec_fn``): it ends by SIGTERM when
    this process ends, and is pinned to a core. None where the system has nothing of it.
    """
    if not IS_LINUX:
        return None
    import ctypes  # noqa: F401 - an import in the child might wait for a lock of another thread

    parent = os.getpid()

    def prepare() -> None:
        end_with_parent(parent, signal.SIGTERM)
        if core is not None:
            os.sched_setaffinity(0, {core})

    return prepare


def end_with_this_process(child: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Have a child get SIGTERM when this process ends, however it ends, where :func:`before_exec`
    cannot: by a shell that waits for the end of a pipe of which this process has the other end.

    The shell ends when ``child`` is forgotten, which is to be soon after its end was seen: a number
    of a process is given again.
    """
    if IS_LINUX:
        return
    reading, writing = os.pipe()
    try:
        watch = os.posix_spawn(
            "/bin/sh",
            ["sh", "-c", _WATCH, str(child.pid)],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)],
            setpgroup=0,  # Ctrl-C is for this process
        )
    finally:
        os.close(reading)
    # Not at this process's end: then the child is to end too.
    weakref.finalize(child, _call_off, watch, writing).atexit = False


def _call_off(watch: int, writing: int) -> None:
    with suppress(OSError):
        os.write(writing, b"over\n")
    os.close(writing)
    with suppress(OSError):
        os.waitpid(watch, 0)
