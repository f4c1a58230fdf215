"""The operating system's files: what opens, reads, writes and flushes those of log directories.

Everything above takes a :class:`FileSystem` as a parameter, so that a test can pass a twin that
fails, runs full, or loses what was not flushed. Failures are OSError here; the caller that knows
the log directory turns them into StorageError.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from millstream import platform
from millstream.model.errors import NO_ROOM
from millstream.storage.record_lock import LocalLock
from millstream.storage.reserved_blocks import reserve_blocks

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
"""Bytes to look at; a mapping pages them in from the file."""

_T = TypeVar("_T")

_READ_LIMIT: Final = 1 << 30
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

_PROBE_STEP_BYTES: Final = 256 * 1024
"""How far apart :meth:`LocalFile.is_cached` looks: what a disk read brings in or memory pressure
drops comes in runs of about half of that.
"""

_REMOVALS: Final = 4  # of a directory that is not empty when it was emptied

_STATUS_BLOCK_BYTES: Final = 512
"""The unit of ``st_blocks``, whatever the blocks of the file system are."""

_NO_WAIT: Final = platform.NO_WAIT
_ONE_BYTE: Final = (bytearray(1),)


class File(Protocol):
    """An open file. It closes when the last reference to it goes."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def read_at(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes from ``position`` on, fewer at the end of the file."""

    def is_cached(self, position: int, size: int) -> bool:
        """Tell whether these bytes, one at least, can be read without waiting for a disk.

        An estimate from a sample of them; True where the system cannot tell.
        """

    def read_ahead(self, position: int, size: int) -> None:
        """Read bytes into the page cache, blocking on the disk if necessary. Any thread."""

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data``; on OSError a part of it may have been written."""

    def size(self) -> int:
        """Return the bytes in the file."""

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes; what is added reads as zeros."""

    def reserve(self, position: int, size: int) -> None:
        """Set disk blocks aside for ``size`` bytes from ``position`` on, which will be written; the
        file's size stays as it is.

        Never fails, and does nothing where that would not help: whether there is room is said by
        the write. Appends into blocks that are there cost the system less.
        """

    def give_back_reserved(self) -> None:
        """Free the blocks beyond the end of the file."""

    def sync(self) -> None:
        """Wait until the bytes, and the size that goes with them, are on disk. Any thread."""


class Lock(Protocol):
    """A lock on a file, held until released."""

    def release(self) -> None:
        """Release the lock."""


class DirectoryEntry(NamedTuple):
    """A name in a directory. Size and time are those of a file, and 0 for a directory."""

    name: str
    is_directory: bool
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of the volume under a directory."""

    total_bytes: int
    usable_bytes: int


class FileSystem(Protocol):
    """What storage asks of a file system. Paths are absolute."""

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file. FileNotFoundError when it is not there and not to be created."""

    def map(self, path: str) -> Buffer:
        """Return the file's bytes to read, without reading them now."""

    def scan(self, directory: str) -> list[DirectoryEntry]:
        """Return what is in a directory, in no order."""

    def exists(self, path: str) -> bool:
        """True when there is a file or directory."""

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; one that exists is fine."""

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename a file or directory; a file in the way is replaced."""

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set when a file was last written, as :meth:`scan` tells it."""

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all in it; one that is not there is fine."""

    def sync_directory(self, path: str) -> None:
        """Wait until the names in a directory are on disk. Any thread."""

    def sync_files(self, files: Sequence[File]) -> None:
        """Flush several files, side by side where that is faster; all are tried, then the first
        failure is raised. Any thread.
        """

    def sync_all(self, directory: str) -> None:
        """Wait until everything written to the directory's volume is on disk. Any thread."""

    def lock(self, path: str) -> Lock:
        """Lock a file, made if need be. BlockingIOError when another process holds it."""

    def space(self, directory: str) -> Space:
        """Return the room on the volume."""


def read_file(file_system: FileSystem, path: str) -> bytes:
    """Return all bytes of a file; FileNotFoundError when there is none."""
    file = file_system.open(path, writable=False)
    return file.read_at(0, file.size())


def replace_file(file_system: FileSystem, path: str, data: bytes, *, durable: bool = True) -> None:
    """Put a file in place whole: written beside it as ``.tmp``, then renamed.

    With ``durable`` the bytes are flushed before the rename and the directory after it; without,
    a power loss (not a crash of the process) may leave an empty file.
    """
    temporary = f"{path}.tmp"
    file = file_system.open(temporary, create=True)
    file.truncate(0)
    file.write_at(0, data)
    if durable:
        file.sync()
    del file
    file_system.rename(temporary, path)
    if durable:
        file_system.sync_directory(os.path.dirname(path))


class LocalFile:
    """A :class:`File` on a descriptor of its own."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def read_at(self, position: int, size: int) -> bytes:
        """Read in one call, or several beyond what the system gives at once."""
        data = os.pread(self._descriptor, min(size, _READ_LIMIT), position)
        if len(data) == size or not data:
            return data
        pieces = [data]
        read = len(data)
        while read < size:
            data = os.pread(self._descriptor, min(size - read, _READ_LIMIT), position + read)
            if not data:
                break
            pieces.append(data)
            read += len(data)
        return b"".join(pieces)

    def is_cached(self, position: int, size: int) -> bool:
        """Look at the first and the last byte, and at one every 256 KiB: half a microsecond each.

        ``RWF_NOWAIT`` makes a read fail that would have to wait. On other systems than Linux, and
        on file systems that do not support it, everything counts as cached.
        """
        if not _NO_WAIT:
            return True
        descriptor, preadv = self._descriptor, os.preadv
        last = position + size - 1
        try:
            preadv(descriptor, _ONE_BYTE, last, _NO_WAIT)
            while position < last:
                preadv(descriptor, _ONE_BYTE, position, _NO_WAIT)
                position += _PROBE_STEP_BYTES
        except BlockingIOError:
            return False
        except OSError:
            return True  # the error appears when the bytes are read
        return True

    def read_ahead(self, position: int, size: int) -> None:
        """Read in pieces and drop the data: the system keeps it in the page cache."""
        while size > 0:
            read = len(os.pread(self._descriptor, min(size, _PROBE_STEP_BYTES), position))
            if read == 0:
                return
            position += read
            size -= read

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write in one call, or go on after short ones."""
        written = os.pwrite(self._descriptor, data, position)
        if written != len(data):
            self._write_rest(position, memoryview(data), written)

    def _write_rest(self, position: int, data: memoryview, written: int) -> None:
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)

    def size(self) -> int:
        """Return the bytes in the file."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        os.ftruncate(self._descriptor, size)

    def reserve(self, position: int, size: int) -> None:
        """Allocate blocks beyond the end (``fallocate`` with ``FALLOC_FL_KEEP_SIZE``)."""
        reserve_blocks(self._descriptor, position, size)

    def give_back_reserved(self) -> None:
        """Truncate to the size that the file has, which frees what is allocated beyond it."""
        status = os.fstat(self._descriptor)
        if status.st_blocks * _STATUS_BLOCK_BYTES >= status.st_size + status.st_blksize:
            os.ftruncate(self._descriptor, status.st_size)

    def sync(self) -> None:
        """Flush data and size, not the times."""
        _flush(platform.flush_data, self._descriptor)


class LocalFileSystem:
    """The machine's own file system.

    ``make_room`` closes files when the process has no descriptor left, and says whether it could:
    a disk must not be taken for broken because there are many connections.
    """

    def __init__(self, make_room: Callable[[], bool] = lambda: False) -> None:
        self._make_room = make_room

    def _descriptor(self, path: str, flags: int) -> int:
        return self._with_room(lambda: os.open(path, flags | os.O_CLOEXEC, 0o644))

    def _with_room(self, take: Callable[[], _T]) -> _T:
        while True:
            try:
                return take()
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._make_room():
                    raise

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file to read, and to write unless told otherwise."""
        flags = os.O_RDWR if writable else os.O_RDONLY
        return LocalFile(self._descriptor(path, flags | os.O_CREAT if create else flags))

    def map(self, path: str) -> Buffer:
        """Map the file's pages; an empty file is empty bytes, for nothing can be mapped."""
        descriptor = self._descriptor(path, os.O_RDONLY)
        try:
            if os.fstat(descriptor).st_size == 0:
                return b""
            # A mapping has a descriptor of its own.
            return self._with_room(lambda: mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(descriptor)

    def scan(self, directory: str) -> list[DirectoryEntry]:
        """List with one system call a file for its size."""
        found = []
        with self._with_room(lambda: os.scandir(directory)) as entries:
            for entry in entries:
                if entry.is_dir():
                    found.append(DirectoryEntry(entry.name, True, 0, 0))
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    modified_ms = status.st_mtime_ns // 1_000_000
                    found.append(DirectoryEntry(entry.name, False, status.st_size, modified_ms))
        return found

    def exists(self, path: str) -> bool:
        """True when there is a file or directory."""
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; records and credentials in it are read by this user
        alone.
        """
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, old_path: str, new_path: str) -> None:
        """Rename in one step."""
        os.replace(old_path, new_path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set both of a file's times."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory if it is there, with what somebody still makes in it meanwhile."""
        for left in reversed(range(_REMOVALS)):
            with contextlib.suppress(FileNotFoundError):
                with self._with_room(lambda: os.scandir(path)) as entries:
                    found = list(entries)
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        self.remove_tree(entry.path)
                    else:
                        self.remove(entry.path)
                try:
                    os.rmdir(path)
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or not left:
                        raise
                    continue
            return

    def sync_directory(self, path: str) -> None:
        """Flush a directory; one that was renamed or removed since needs no flush."""
        self._flush(path, platform.flush_file)

    def sync_files(self, files: Sequence[File]) -> None:
        """Flush with a thread each from two files up: a disk takes their requests together."""
        if len(files) < 2:
            for file in files:
                file.sync()
            return
        outcomes = [_sync_threads().submit(file.sync) for file in files]
        failures = [failure for each in outcomes if (failure := each.exception()) is not None]
        if failures:
            raise failures[0]

    def sync_all(self, directory: str) -> None:
        """Flush the volume in one call (``syncfs``), which beats many flushes of single files; file
        by file where the system has no such call.

        Each failed write is told to a descriptor that was open by then, and to one that is opened
        later unless somebody was told already: another program that flushes the same volume, or
        another broker. So the descriptor is that of the lock, which was there before all writes.
        """
        flush_volume = _volume_flush()
        if flush_volume is None:
            self._sync_tree(directory)
            return
        descriptor = LocalLock.descriptor_in(directory)
        if descriptor is not None:
            _check_flushed(flush_volume(descriptor), directory)
            return
        descriptor = self._descriptor(directory, os.O_RDONLY | platform.DIRECTORY)
        try:
            _check_flushed(flush_volume(descriptor), directory)
        finally:
            os.close(descriptor)

    def _sync_tree(self, directory: str) -> None:
        """Flush what is below a directory, several files at once, and last what the drive holds."""
        paths = list(self._tree(directory))
        for _ in _sync_threads().map(self._flush, paths, repeat(platform.hand_to_drive)):
            pass  # the first failure is raised here
        self._flush(directory, platform.flush_file)

    def _tree(self, directory: str) -> Iterator[str]:
        """Yield the files below a directory, and the directories, itself included."""
        try:
            with self._with_room(lambda: os.scandir(directory)) as entries:
                found = list(entries)
        except FileNotFoundError:  # removed meanwhile
            return
        yield directory
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from self._tree(entry.path)
            elif entry.is_file():  # a socket cannot be opened
                yield entry.path

    def _flush(self, path: str, flush: Callable[[int], None]) -> None:
        """Flush a file or directory that may have been removed meanwhile."""
        try:
            descriptor = self._descriptor(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            _flush(flush, descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> Lock:
        """Lock a file."""
        return LocalLock(path)

    def space(self, directory: str) -> Space:
        """Ask the volume; usable is what this user may take."""
        status = os.statvfs(directory)
        return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize)


_SYNC_THREADS: Final = 8
_FOR_FILES: Final = 256


_of_thread = threading.local()


def _sync_threads() -> ThreadPoolExecutor:
    """Return the calling thread's pool: each disk has its own flusher thread, and a disk that hangs
    must not delay another.
    """
    threads: ThreadPoolExecutor | None = getattr(_of_thread, "sync_threads", None)
    if threads is None:
        from concurrent.futures import ThreadPoolExecutor

        threads = _of_thread.sync_threads = ThreadPoolExecutor(_SYNC_THREADS, "fsync")
    return threads


_volume_flush: Final = cache(platform.volume_flush)


def _flush(flush: Callable[[int], None], descriptor: int) -> None:
    """Flush a file. A volume that finds only now that it has no room (thinly provisioned, or of a
    server) has lost what it had accepted: that is a failure of the disk, and not a full one.
    """
    try:
        flush(descriptor)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise OSError(errno.EIO, f"what was written is lost: {error.strerror}") from error
        raise


def _check_flushed(answer: int, directory: str) -> None:
    if answer:
        raise OSError(errno.EIO, "the volume could not be flushed", directory)


def last_descriptor_of_clients() -> int:
    """Return the highest descriptor that connections may take, lest none be left for files: an
    eighth of what the process may open, 256 at most, is kept back.
    """
    limit = platform.raise_open_file_limit()
    return limit - 1 - min(limit // 8, _FOR_FILES)
