"""The machine's files with a page cache that a test empties and watches, and disks that hang.

Whatever is written or read ahead is in memory until :meth:`SlowFiles.drop_cache`. A read or a
mapping of anything else is a *stall*: it is carried out, and noted. Hooks run, on the thread that
does it, before a flush, a read ahead and a stall; one that blocks is a disk that hangs.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from millstream.storage.files import Buffer, File, LocalFileSystem

PAGE = 4096


def pages(position: int, size: int) -> range:
    return range(position // PAGE, (position + size - 1) // PAGE + 1)


class SlowFile:
    """An open file of :class:`SlowFiles`."""

    def __init__(self, owner: SlowFiles, path: str, file: File) -> None:
        self._owner = owner
        self._path = path
        self._file = file

    def fileno(self) -> int:
        return self._file.fileno()

    def read_at(self, position: int, size: int) -> bytes:
        self._owner.touch(self._path, position, size)
        return self._file.read_at(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        return self._owner.has(self._path, position, size)

    def read_ahead(self, position: int, size: int) -> None:
        self._owner.on_read_ahead(self._path)
        self._owner.keep(self._path, position, size)

    def write_at(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._file.write_at(position, data)
        self._owner.keep(self._path, position, len(data))

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def reserve(self, position: int, size: int) -> None:
        self._file.reserve(position, size)

    def give_back_reserved(self) -> None:
        self._file.give_back_reserved()

    def sync(self) -> None:
        self._owner.on_sync(self._path)
        self._file.sync()


class SlowFiles(LocalFileSystem):
    """A :class:`millstream.storage.files.FileSystem`."""

    def __init__(self) -> None:
        self._cached: set[tuple[str, int]] = set()
        self._watching = False
        self.stalls: list[str] = []
        """Names of the files that were read where they were not in memory."""
        self.on_read_ahead: Callable[[str], None] = lambda path: None
        self.on_stall: Callable[[str], None] = lambda path: None
        self.on_sync: Callable[[str], None] = lambda path: None

    def drop_cache(self) -> None:
        """Forget what is in memory, and note stalls from now on."""
        self._cached.clear()
        self._watching = True

    def keep(self, path: str, position: int, size: int) -> None:
        self._cached.update((path, page) for page in pages(position, size))

    def has(self, path: str, position: int, size: int) -> bool:
        size = min(size, os.path.getsize(path) - position)
        return not self._watching or all((path, p) in self._cached for p in pages(position, size))

    def touch(self, path: str, position: int, size: int) -> None:
        if not self.has(path, position, size):
            self.stalls.append(os.path.basename(path))
            self.on_stall(path)
            self.keep(path, position, size)

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        return SlowFile(self, path, super().open(path, create=create, writable=writable))

    def map(self, path: str) -> Buffer:
        self.touch(path, 0, os.path.getsize(path))
        return super().map(path)

    def sync_all(self, directory: str) -> None:
        self.on_sync(directory)
        super().sync_all(directory)
