"""The ``.log`` file of a segment: whole record batches one after the other, no padding.

The file is opened on first use and closed when too many are open. Kafka: ``FileRecords``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, Batch, header_at
from millstream.records.find_kernel import batch_finder
from millstream.records.kernel import library
from millstream.records.legacy import MAGIC_POSITION, check_not_legacy
from millstream.storage.directory import LOG, SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import File
from millstream.storage.read_ahead import ColdReadError, FileRange

SCAN_BYTES: Final = 8192
"""How much a search reads at a time: an index interval and a header."""

READ_AHEAD_BYTES: Final = 1 << 20
"""How much a walk over whole batches reads at a time."""

RESERVED_FROM_BYTES: Final = 256 * 1024
"""From this size on disk blocks are reserved ahead of what is written."""

MAX_RESERVED_BYTES: Final = 16 << 20
"""How much is reserved at a time at most."""

_RESERVED_PART: Final = 4
"""A quarter as much as the segment holds is reserved: no log takes much more room than its size
says, however many there are, and a segment is extended some forty times on the way to 1 GiB.
"""

_NEVER: Final = 1 << 63

_OFFSETS = struct.Struct(">qi4xb6xi")
"""Base offset, batch length, magic, last offset delta: what a search needs of a header."""

_OFFSETS_MAX_TIMESTAMP = struct.Struct(">qiib6xi8xq")
"""Base offset, batch length, leader epoch, magic, last offset delta, max timestamp."""

_SMALLEST_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD


class BatchPosition(NamedTuple):
    """Where a batch lies in the file, and which offsets it spans."""

    position: int
    size: int
    base_offset: Offset
    last_offset: Offset
    leader_epoch: LeaderEpoch
    max_timestamp: int


class FileRecords:
    """The batches of one segment. ``size`` is how many bytes of them there are; a preallocated
    file is longer.
    """

    __slots__ = (
        "_environment",
        "_file",
        "_location",
        "_reserve_beyond",
        "_reserves",
        "cuts",
        "size",
    )

    def __init__(self, environment: LogEnvironment, location: SegmentLocation, size: int) -> None:
        self._environment = environment
        self._location = location
        self._file: File | None = None
        self._reserves = False
        self._reserve_beyond = _NEVER
        """An append that ends beyond this position first reserves blocks."""
        self.size = size
        self.cuts = 0
        """How often the end was cut off; a look-up result from before a cut may be stale."""

    def reserve_ahead(self, reserves: bool) -> None:
        """Set whether blocks are reserved ahead of appends: False where each append is flushed, or
        the whole file is preallocated.
        """
        self._reserves = reserves
        self._reserve_beyond = max(self.size, RESERVED_FROM_BYTES) if reserves else _NEVER

    @property
    def path(self) -> str:
        """Path of the file."""
        return self._location.path(LOG)

    def create(self, preallocate_bytes: int) -> None:
        """Recreate the file."""
        self._file = self._environment.file_system.open(self.path, create=True)
        self._file.truncate(0)
        if preallocate_bytes:
            self._file.truncate(preallocate_bytes)
        self.size = 0
        self.reserve_ahead(self._reserves)
        self.cuts += 1
        self._environment.open_files.opened(self)

    def file(self) -> File:
        """Return the open file."""
        file = self._file
        if file is None:
            file = self._file = self._environment.file_system.open(self.path)
            self._environment.open_files.opened(self)
        return file

    def cold_ranges(self, position: int, size: int) -> list[FileRange]:
        """Return this range if reading it would block on the disk, else nothing. Bytes beyond the
        end are ignored.
        """
        size = min(size, self.size - position)
        file = self.file()
        if size <= 0 or file.is_cached(position, size):
            return []
        return [FileRange(file, position, size)]

    def ensure_in_memory(self, position: int, size: int) -> None:
        """Raise ColdReadError where a read of this range would wait for a disk."""
        file = self._file or self.file()
        end = self.size
        if position + size > end:
            size = end - position
        if size > 0 and not file.is_cached(position, size):
            raise ColdReadError([FileRange(file, position, size)])

    def refuse_old_format(self) -> None:
        """Raise UnsupportedFormatError if the file begins with a valid message of magic 0 or 1.
        Writes nothing, and reads only the beginning of any other file.
        """
        head = self.file().read_at(0, MAGIC_POSITION + 1) if self.size > MAGIC_POSITION else b""
        if head and head[MAGIC_POSITION] < MAGIC:
            check_not_legacy(self.chunk(0))

    def release(self) -> None:
        """Close the file until it is needed again; slices of it stay readable."""
        self._file = None

    def close(self) -> None:
        """Close the file for good."""
        if self._file is not None:
            self._file = None
            self._environment.open_files.closed(self)

    def append(self, data: bytes | bytearray | memoryview, size: int) -> None:
        """Write ``data`` at the end. When that fails, what was written of it is cut off again."""
        file = self._file
        if file is None:
            file = self.file()
        position = self.size
        end = position + size
        if end > self._reserve_beyond:
            self._reserve(file, end)
        try:
            file.write_at(position, data)
        except OSError:
            file.truncate(position)
            raise
        self.size = end

    def _reserve(self, file: File, end: int) -> None:
        """Reserve blocks for an append that ends at ``end``, and for those that follow it."""
        self._reserve_beyond = end + min(end // _RESERVED_PART, MAX_RESERVED_BYTES)
        file.reserve(self.size, self._reserve_beyond - self.size)

    def truncate(self, size: int) -> int:
        """Cut the batches from ``size`` on; return how many bytes went."""
        assert 0 <= size <= self.size
        cut = self.size - size
        self.cuts += 1
        self.file().truncate(size)
        self.size = size
        self.reserve_ahead(self._reserves)
        return cut

    def trim(self) -> None:
        """Cut off what was preallocated, and free what was reserved, and not used."""
        file = self.file()
        if file.size() != self.size:
            file.truncate(self.size)
        elif self.size > RESERVED_FROM_BYTES:
            file.give_back_reserved()

    def find(self, offset: Offset, position: int) -> BatchPosition | None:
        """Return the first batch from ``position`` on whose last offset is at least ``offset``;
        None when all end before it. Raises CorruptLogError where no batch can start.
        """
        end = self.size
        file = self.file()
        chunk = b""
        start = position
        find_batch = batch_finder(library(), BatchPosition)
        while end - position >= HEADER_SIZE:
            at = position - start
            if at < 0 or at + HEADER_SIZE > len(chunk):
                start, at = position, 0
                chunk = file.read_at(position, min(SCAN_BYTES, end - position))
                if len(chunk) < HEADER_SIZE:
                    break
                if find_batch is not None:
                    found = find_batch(chunk, 0, position, end, offset)
                    if isinstance(found, BatchPosition):
                        return found
                    if found is not None:
                        position = found
                        continue
            base_offset, length, magic, delta = _OFFSETS.unpack_from(chunk, at)
            if length < _SMALLEST_LENGTH or magic != MAGIC or delta < 0 or base_offset < 0:
                raise self._corrupt(position)
            if base_offset + delta >= offset:
                return self._batch_position(chunk, at, position)
            position += length + LENGTH_OVERHEAD
        return None

    def batch_holding(self, offset: Offset, position: int) -> BatchPosition | None:
        """Return the batch at ``position`` if there is one and it contains ``offset``, else
        None.
        """
        header = (self._file or self.file()).read_at(position, HEADER_SIZE)
        find_batch = batch_finder(library(), BatchPosition)
        found = find_batch and find_batch(header, 0, position, self.size, offset)
        if not isinstance(found, BatchPosition):
            if len(header) < HEADER_SIZE:
                return None
            try:
                found = self._batch_position(header, 0, position)
            except CorruptLogError:
                return None
        return found if found.base_offset <= offset <= found.last_offset else None

    def headers(self, position: int = 0) -> Iterator[BatchPosition]:
        """Yield every batch from ``position`` on, by header alone.

        Raises CorruptLogError at bytes that are no batch, or at a batch that is cut off.
        """
        end = self.size
        file = self.file()
        chunk = b""
        start = position
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                start, at = position, 0
                chunk = file.read_at(position, min(SCAN_BYTES, end - position))
                if len(chunk) < HEADER_SIZE:
                    raise self._corrupt(position)
            found = self._batch_position(chunk, at, position)
            yield found
            position += found.size

    def batches(self, position: int = 0) -> Iterator[tuple[int, Batch]]:
        """Yield every batch from ``position`` on, whole, with the position where it starts.

        CRCs are not checked. Raises CorruptLogError as :meth:`headers` does. A batch is a view of
        what was read: it stays valid.
        """
        end = self.size
        file = self.file()
        chunk = memoryview(b"")
        start = position
        while position < end:
            at = position - start
            if at + HEADER_SIZE > len(chunk):
                start, at = position, 0
                chunk = memoryview(file.read_at(position, min(READ_AHEAD_BYTES, end - position)))
            batch = header_at(chunk, at)
            size = batch.size
            if position + size > end:
                raise self._corrupt(position)
            if at + size > len(chunk):
                start, at = position, 0
                wanted = max(size, min(READ_AHEAD_BYTES, end - position))
                chunk = memoryview(file.read_at(position, wanted))
                if len(chunk) < size:
                    raise self._corrupt(position)
                batch = header_at(chunk)
            yield position, batch
            position += size

    def chunk(self, position: int, size: int = READ_AHEAD_BYTES) -> memoryview:
        """Return up to ``size`` bytes from ``position`` on, fewer at the end of the batches."""
        return memoryview(self.file().read_at(position, min(size, self.size - position)))

    def size_at(self, position: int) -> int:
        """Return the size of the batch that starts at ``position``."""
        return next(self.headers(position)).size

    def batch_at(self, found: BatchPosition) -> Batch:
        """Return a batch that :meth:`find` or :meth:`headers` located, whole."""
        return header_at(self.file().read_at(found.position, found.size))

    def _batch_position(self, chunk: bytes, at: int, position: int) -> BatchPosition:
        base_offset, length, leader_epoch, magic, delta, max_timestamp = (
            _OFFSETS_MAX_TIMESTAMP.unpack_from(chunk, at)
        )
        size = length + LENGTH_OVERHEAD
        if (
            size < HEADER_SIZE
            or position + size > self.size
            or magic != MAGIC
            or delta < 0
            or base_offset < 0
        ):
            raise self._corrupt(position)
        return BatchPosition(
            position, size, base_offset, base_offset + delta, leader_epoch, max_timestamp
        )

    def _corrupt(self, position: int) -> CorruptLogError:
        return CorruptLogError(f"{self.path}: no batch at position {position} of {self.size}")
