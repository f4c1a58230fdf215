"""The disk of a broker under test: the machine's files, which a test makes slow, full or broken.

It covers what storage does through ``storage.files``: logs, indexes, checkpoints. The metadata
store is a database that opens its file itself, and stays as it is.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence

from millstream.storage.files import Buffer, File, LocalFileSystem, Space


class SteeredDisk(LocalFileSystem):
    """A :class:`millstream.storage.files.FileSystem`. Set the attributes to make it fail."""

    def __init__(self, make_room: Callable[[], bool]) -> None:
        super().__init__(make_room)
        self.is_full = False
        """Writes, and whatever makes a file, fail with ENOSPC."""
        self.is_broken = False
        """Everything that would reach the disk fails with EIO."""
        self.flush_s = 0.0
        """How much longer a flush takes. It runs on the thread of the flush."""
        self.write_s = 0.0
        """How much longer a write takes. It runs on the broker's loop, which stands still then, as
        it does where the system has no memory left for what is to be written."""

    def wrote(self, path: str) -> None:
        """Fail or wait in place of a write; called before each."""
        self.reached(path)
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        if self.write_s:
            time.sleep(self.write_s)

    def reached(self, path: str) -> None:
        """Fail where the disk is broken."""
        if self.is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def flushed(self, path: str) -> None:
        """Fail or wait in place of a flush; called before each."""
        self.reached(path)
        if self.flush_s:
            time.sleep(self.flush_s)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        """Open a file; one that would have to be made is a write."""
        if create and not os.path.exists(path):
            self.wrote(path)
        self.reached(path)
        return SteeredFile(self, path, super().open(path, create=create, writable=writable))

    def map(self, path: str) -> Buffer:
        """Map a file."""
        self.reached(path)
        return super().map(path)

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        if not os.path.isdir(path):
            self.wrote(path)
        super().make_directory(path)

    def sync_directory(self, path: str) -> None:
        """Flush a directory."""
        self.flushed(path)
        super().sync_directory(path)

    def sync_files(self, files: Sequence[File]) -> None:
        """Flush files, at the same time: the wait is that of one."""
        if files:
            self.flushed("")
        super().sync_files([each.file if isinstance(each, SteeredFile) else each for each in files])

    def sync_all(self, directory: str) -> None:
        """Flush the volume."""
        self.flushed(directory)
        super().sync_all(directory)

    def space(self, directory: str) -> Space:
        """Ask the volume; a full disk has no room."""
        found = super().space(directory)
        return Space(found.total_bytes, 0) if self.is_full else found


class SteeredFile:
    """An open file of a :class:`SteeredDisk`."""

    def __init__(self, disk: SteeredDisk, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self.file = file

    def fileno(self) -> int:
        """Return the descriptor."""
        return self.file.fileno()

    def read_at(self, position: int, size: int) -> bytes:
        """Read."""
        self._disk.reached(self._path)
        return self.file.read_at(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        """Tell whether no disk has to be waited for."""
        return self.file.is_cached(position, size)

    def read_ahead(self, position: int, size: int) -> None:
        """Read into the page cache."""
        self._disk.flushed(self._path)
        self.file.read_ahead(position, size)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write."""
        self._disk.wrote(self._path)
        self.file.write_at(position, data)

    def size(self) -> int:
        """Return the bytes in the file."""
        return self.file.size()

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        self._disk.reached(self._path)
        self.file.truncate(size)

    def reserve(self, position: int, size: int) -> None:
        """Set blocks aside, which a full disk has not."""
        if not self._disk.is_full:
            self.file.reserve(position, size)

    def give_back_reserved(self) -> None:
        """Free blocks."""
        self.file.give_back_reserved()

    def sync(self) -> None:
        """Flush."""
        self._disk.flushed(self._path)
        self.file.sync()
