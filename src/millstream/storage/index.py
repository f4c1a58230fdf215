"""What the offset index and the time index have in common: fixed entries, sorted, searched by
halves.

A new index has no file before its first entry: most segments of a broker with many partitions stay
small, and making a file costs more than anything else about them. A log that was closed has all
of its files; one that was not is recovered, and its indexes are rebuilt.

The index of a closed segment is mapped and read where it lies, on the thread that owns the log and
on no other: that thread also cuts the file, and the system ends a process that reads a mapping
beyond the end of its file (SIGBUS). A detached index, which another thread uses, is read into
memory; its mapping is made for the owner to adopt. The index of the active segment is
kept in memory, and each entry is written to the file at once; the file has its full size
(``segment.index.bytes``) from the first entry on, zeros after the entries, and is cut to them when
the segment closes. So a file that was left untrimmed ends in zeros. It is written and not mapped
then, because a full disk is an error on a write and a signal on a mapping.

Contents are checked: an index that is out of order, cut inside an entry, or zero where it must
not be raises CorruptIndexError, and its segment rebuilds it from the log. Kafka: ``AbstractIndex``.
"""

from __future__ import annotations

import operator
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, Final, Self

from millstream.model.errors import CorruptIndexError
from millstream.model.offsets import Offset
from millstream.storage.directory import SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import Buffer, File, read_file
from millstream.storage.read_ahead import FileRange

_COMPARED_AT_ONCE: Final = 4096


class SegmentIndex(ABC):
    """Entries of ``entry`` layout; the first field is the key by which they are sorted."""

    extension: ClassVar[str]
    entry: ClassVar[struct.Struct]

    __slots__ = (
        "_data",
        "_environment",
        "_file",
        "_is_detached",
        "_is_missing",
        "_is_unwritten",
        "_location",
        "_mapping",
        "_preallocated",
        "base_offset",
        "count",
        "max_bytes",
        "max_entries",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        location: SegmentLocation,
        max_bytes: int,
        *,
        is_detached: bool = False,
    ) -> None:
        """``is_detached`` for an object that another thread uses than the one that owns the log."""
        self._environment = environment
        self._location = location
        self._is_detached = is_detached
        self._data: Buffer | None = None
        self._mapping: Buffer | None = None
        """What a detached object hands to its owner; it is never read here."""
        self._file: File | None = None
        self._preallocated = False
        self._is_missing = False
        self._is_unwritten = False
        self.count = 0
        """Entries; known once the index was loaded or created."""
        self.max_bytes = max_bytes
        self.max_entries = max_bytes // self.entry.size
        """Entries that fit into ``segment.index.bytes``."""
        self.base_offset: Offset = location.base_offset
        """Base offset of the segment, which the entries' offsets are relative to."""

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._location.path(self.extension)

    @property
    def is_loaded(self) -> bool:
        """True while the entries are at hand."""
        return self._data is not None

    @property
    def is_unwritten(self) -> bool:
        """True while entries were collected that :meth:`trim` has yet to write."""
        return self._is_unwritten

    def create(self) -> None:
        """Recreate the index, empty; an older file is truncated. Without an older file, the file is
        created with the first entry, or when the index is trimmed.
        """
        self.close()
        self._data = bytearray()
        self.count = 0
        self._preallocated = False
        self._is_missing = not self._environment.file_system.exists(self.path)
        if not self._is_missing:
            file = self._open_file()
            file.truncate(0)
            self._preallocate(file)

    def collect(self) -> None:
        """Start empty, in memory only: :meth:`trim` writes the added entries to the file unless the
        file already has the same content.
        """
        self.close()
        self._data = bytearray()
        self.count = 0
        self._preallocated = False
        self._is_unwritten = True

    def load(self, *, to_append: bool) -> None:
        """Load the entries: mapped, or copied into memory if entries will be appended
        (``to_append``) or the object is detached.

        Raises CorruptIndexError and FileNotFoundError.
        """
        if isinstance(self._data, bytearray) or (self._data is not None and not to_append):
            return
        self.close()
        file_system = self._environment.file_system
        data: Buffer
        if to_append:
            data = bytearray(read_file(file_system, self.path))
        elif self._is_detached:
            data = read_file(file_system, self.path)
        else:
            data = file_system.map(self.path)
        size = len(data)
        if size % self.entry.size:
            raise self._corrupt(f"{size} bytes are no whole number of entries")
        self.check(data)
        self._data = data
        self.count = size // self.entry.size
        self._preallocated = False
        if to_append:
            return
        if self._is_detached:
            mapping = file_system.map(self.path)
            self._mapping = mapping if len(mapping) == size else None
        self._environment.open_files.opened(self)

    def read_last(self) -> bytes | None:
        """Return the last entry as it stands in memory or, read alone, in the file; None in an
        empty index. Raises CorruptIndexError and FileNotFoundError.
        """
        entry_size = self.entry.size
        data = self._data
        if data is not None:
            return bytes(data[-entry_size:]) if self.count else None
        file = self._environment.file_system.open(self.path, writable=False)
        size = file.size()
        if size % entry_size:
            raise self._corrupt(f"{size} bytes are no whole number of entries")
        return file.read_at(size - entry_size, entry_size) if size else None

    def adopt(self, other: Self) -> None:
        """Use the entries of a detached object for the same file, which is closed."""
        self.close()
        mapping = other._mapping
        self._data = other._data if mapping is None else mapping
        self.count = other.count
        self._is_unwritten = other._is_unwritten
        other.close()
        if self._data is not None and not self._is_unwritten:
            self._environment.open_files.opened(self)

    def cold_ranges(self) -> list[FileRange]:
        """Return the file's range if loading its entries would block on the disk."""
        if self._data is not None:
            return []
        try:
            file = self._environment.file_system.open(self.path, writable=False)
        except FileNotFoundError:
            return []
        size = file.size()
        return [] if size == 0 or file.is_cached(0, size) else [FileRange(file, 0, size)]

    def entries(self) -> Buffer:
        """Return the entries' bytes, loaded again if the file was closed to stay within the
        open-file limit.

        Raises CorruptIndexError and FileNotFoundError.
        """
        data = self._data
        # The open-file limit allows another thread to close it again at any moment.
        while data is None:
            self.load(to_append=False)
            data = self._data
        return data

    @abstractmethod
    def check(self, data: Buffer) -> None:
        """Raise CorruptIndexError unless the entries are valid for this kind of index."""

    def release(self) -> None:
        """Close the file or the mapping; entries in memory stay."""
        self._file = None
        self._mapping = None
        if not isinstance(self._data, bytearray):
            self._data = None

    def close(self) -> None:
        """Close the file and forget the entries; trim first."""
        self._environment.open_files.closed(self)
        self._file = None
        self._data = None
        self._mapping = None
        self._is_unwritten = False
        self._is_missing = False

    def trim(self) -> None:
        """Cut the file to its entries."""
        if self._is_unwritten:
            self._write_collected()
        if self._is_missing:
            self._open_file()
        if self._preallocated:
            assert self._data is not None
            self._open_file().truncate(len(self._data))
            self._preallocated = False

    def _push(self, packed: bytes, count: int = 1) -> None:
        """Add entries, so many of them."""
        data = self._data
        assert isinstance(data, bytearray), "entries are appended to the active segment"
        if self._is_unwritten:
            data += packed
            self.count += count
            return
        file = self._file
        if file is None:
            file = self._open_file()
        if not self._preallocated:
            self._preallocate(file)
        file.write_at(len(data), packed)
        data += packed
        self.count += count

    def _write_collected(self) -> None:
        data = self._data
        assert data is not None
        self._is_missing = not self._environment.file_system.exists(self.path)
        file = self._open_file()
        size = file.size()
        if size != len(data) or file.read_at(0, size) != data:
            # Overwritten, not truncated first: freeing the file's blocks would take longer than
            # everything else.
            file.write_at(0, bytes(data))
            if size > len(data):
                file.truncate(len(data))
        self._is_unwritten = False

    def _cut(self, count: int) -> None:
        data = self._data
        assert isinstance(data, bytearray), "the active segment is truncated"
        size = count * self.entry.size
        if size == len(data):
            return
        file = self._open_file()
        file.truncate(size)
        self._preallocate(file)
        del data[size:]
        self.count = count

    def _open_file(self, *, create: bool = False) -> File:
        file = self._file
        if file is None:
            create = create or self._is_missing
            file = self._file = self._environment.file_system.open(self.path, create=create)
            self._is_missing = False
            self._environment.open_files.opened(self)
        return file

    def _preallocate(self, file: File) -> None:
        file.truncate(self.max_entries * self.entry.size)
        self._preallocated = True

    def _corrupt(self, reason: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: {reason}")


def grows(column: Sequence[int]) -> bool:
    """True when each number is larger than the one before it.

    In pieces: each comparison of columns holds the GIL from beginning to end, and other threads
    have to run in between.
    """
    for start in range(0, len(column), _COMPARED_AT_ONCE):
        piece = column[start : start + _COMPARED_AT_ONCE + 1]
        if not all(map(operator.lt, piece, islice(piece, 1, None))):
            return False
    return True


def floor_slot(data: Buffer, entry: struct.Struct, count: int, target: int, field: int = 0) -> int:
    """Return the last of ``count`` slots whose ``field`` is at most ``target``; -1 if none is."""
    low, high = 0, count
    size = entry.size
    unpack_from = entry.unpack_from
    while low < high:
        middle = (low + high) // 2
        if unpack_from(data, middle * size)[field] <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1
