"""One segment of a log: its batches, its three indexes, and when it is time for the next one.

A segment is named by its base offset, the log end offset at the moment it was made. Kafka:
``LogSegment``. The next segment begins when one of these holds (``LogSegment.shouldRoll``)::

    size + batch > segment.bytes
    largest timestamp of the batch - that of the segment's first batch > segment.ms - jitter
    an index is full
    last offset of the batch - base offset > 2**31 - 1

``roll_size``, ``roll_timestamp`` and ``roll_offset`` are the limits beyond which
:meth:`Segment.should_roll` has to be asked; up to them the answer is no.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Sequence
from typing import Final

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptIndexError, CorruptLogError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, NO_TIMESTAMP, Offset
from millstream.records.batch import MAX_TIMESTAMP_POSITION, Batch
from millstream.records.scan import BatchScanner
from millstream.storage.directory import LOG, SEGMENT_EXTENSIONS, SegmentLocation, file_name
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import (
    RESERVED_FROM_BYTES,
    SCAN_BYTES,
    BatchPosition,
    FileRecords,
)
from millstream.storage.segment_indexes import SegmentIndexes
from millstream.storage.transaction_index import TransactionIndex

_NEVER: Final = 2**63
_ALWAYS: Final = -(2**63)
_MAX_HINTS: Final = 16
_INT64: Final = struct.Struct(">q")


class Segment:
    """The files of one segment."""

    __slots__ = (
        "_config",
        "_environment",
        "_first_timestamp",
        "_head_timestamp",
        "_hints",
        "_roll_jitter_ms",
        "base_offset",
        "created_ms",
        "indexes",
        "location",
        "records",
        "roll_offset",
        "roll_size",
        "roll_timestamp",
        "transaction_index",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        location: SegmentLocation,
        config: TopicConfig,
        *,
        size: int,
        created_ms: int,
    ) -> None:
        self._environment = environment
        self._config = config
        self.location = location
        self.base_offset = location.base_offset
        self.created_ms = created_ms
        """When the segment was made or, found at start, last written."""
        self.records = FileRecords(environment, location, size)
        self.records.reserve_ahead(_reserves(config))
        self.indexes = SegmentIndexes(
            environment,
            location,
            self.records,
            max_bytes=config.segment_index_bytes,
            interval_bytes=config.index_interval_bytes,
        )
        self.transaction_index = TransactionIndex(environment, location)
        self._first_timestamp = NO_TIMESTAMP
        self._head_timestamp: int | None = None
        self._roll_jitter_ms = environment.roll_jitter_ms(config.segment_jitter_ms)
        self._hints: dict[Offset, int] | None = None
        self.roll_size = -1
        self.roll_timestamp = _ALWAYS
        self.roll_offset = location.base_offset + MAX_RELATIVE_OFFSET

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.records.size

    def create(self) -> None:
        """Recreate the files and get ready to append."""
        config = self._config
        self.records.create(config.roll_bytes if config.preallocate else 0)
        self.indexes.create()
        self.transaction_index.reset()
        self._set_roll_limits()

    # Appending

    def prepare_append(self) -> None:
        """Load what an append needs; does nothing if it is loaded. Raises CorruptLogError."""
        if not self.indexes.to_append:
            first = next(self.records.headers(), None)
            self.indexes.prepare_append()
            self._first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
            self._set_roll_limits()

    def update_config(self, config: TopicConfig) -> None:
        """Apply changed settings; the size of an index stays the same until the next segment."""
        self._config = config
        self.records.reserve_ahead(_reserves(config))
        self.indexes.interval_bytes = config.index_interval_bytes
        if self.indexes.to_append:
            self._set_roll_limits()

    def should_roll(
        self, *, size: int, max_timestamp: int, last_offset: Offset, now_ms: int
    ) -> bool:
        """Tell whether a batch of ``size`` bytes has to go to the next segment."""
        config = self._config
        if self._first_timestamp >= 0:
            waited_ms = max_timestamp - self._first_timestamp
        else:
            waited_ms = now_ms - self.created_ms
        return (
            self.records.size > config.roll_bytes - size
            or (self.records.size > 0 and waited_ms > config.roll_ms - self._roll_jitter_ms)
            or self.indexes.is_full
            or last_offset > self.roll_offset
        )

    def append(
        self,
        data: bytes | bytearray | memoryview,
        size: int,
        last_offset: Offset,
        max_timestamp: int,
    ) -> None:
        """Append one batch of ``size`` bytes. On OSError nothing has changed."""
        records = self.records
        position = records.size
        records.append(data, size)
        try:
            if self.indexes.add(position, size, last_offset, max_timestamp):
                self.roll_size = -1
        except OSError:
            records.truncate(position)
            raise
        if position == 0:
            self._first_timestamp = max_timestamp
            self._set_roll_limits()

    def append_run(self, data: memoryview, batches: Sequence[Batch]) -> None:
        """Append batches that lie one after the other in ``data``, with one write."""
        records = self.records
        position = records.size
        records.append(data, len(data))
        if position == 0:
            self._first_timestamp = batches[0].max_timestamp
        try:
            start = position
            for batch in batches:
                self.indexes.add(start, batch.size, batch.last_offset, batch.max_timestamp)
                start += batch.size
        except OSError:
            records.truncate(position)
            raise
        self._set_roll_limits()

    def scan(self, scanner: BatchScanner, view: memoryview, next_offset: Offset) -> int:
        """Check the batches in ``view`` as if they were at the end of the log, changing nothing;
        return how many bytes of them are sound and may be passed to :meth:`append_scanned`, 0 where
        one of them may have to go to the next segment.
        """
        indexes, position = self.indexes, self.records.size
        indexes.lead(scanner, next_offset, max_offset=self.roll_offset)
        size = scanner.scan(view, position)
        roll_timestamp = self.roll_timestamp
        if position == 0 and size:
            roll_timestamp = self._limit_after(_first_timestamp(view))
        fits = (
            position + size <= self.roll_size
            and scanner.largest_timestamp <= roll_timestamp
            and indexes.have_room_for(len(scanner.index_entries))
        )
        return size if fits else 0

    def append_scanned(self, data: memoryview, scanner: BatchScanner) -> None:
        """Append what :meth:`scan` has accepted: one write to the log and one to each index."""
        records = self.records
        position = records.size
        records.append(data, len(data))
        if position == 0:
            self._first_timestamp = _first_timestamp(data)
        try:
            self.indexes.extend(scanner)
        except OSError:
            records.truncate(position)
            raise
        if position == 0 or self.indexes.is_full:
            self._set_roll_limits()

    def _set_roll_limits(self) -> None:
        self.roll_size = -1 if self.indexes.is_full else self._config.roll_bytes
        if self.records.size == 0:
            self.roll_timestamp = _NEVER
        else:
            self.roll_timestamp = self._limit_after(self._first_timestamp)

    def _limit_after(self, first_timestamp: int) -> int:
        """Return the largest timestamp that a segment takes whose first batch has this one."""
        if first_timestamp < 0:
            return _ALWAYS
        return first_timestamp + self._config.roll_ms - self._roll_jitter_ms

    def become_inactive(self) -> None:
        """Finish the segment: no append follows."""
        self.prepare_append()
        self.indexes.finish()
        self.roll_size = -1
        if self._config.preallocate or self.records.size > RESERVED_FROM_BYTES:
            self.records.trim()

    def truncate_to(self, offset: Offset, *, now_ms: int) -> int:
        """Drop the batches from the one that holds ``offset`` on and get ready to append; return
        how many bytes went.
        """
        self.prepare_append()
        self._hints = None
        found = self.find(offset)
        cut = 0 if found is None else self.records.truncate(found.position)
        self.indexes.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        if self.records.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = NO_TIMESTAMP
        self._set_roll_limits()
        return cut

    # Looking up

    def find(self, offset: Offset, in_memory: int | None = None) -> BatchPosition | None:
        """Return the first batch whose last offset is at least ``offset``; None if none is.

        An index that turns out to be wrong is rebuilt on the way. Raises CorruptLogError; when
        ``in_memory`` is given, ColdReadError unless the look-up and a read of so many bytes from
        the batch on can do without a disk.
        """
        indexes, records = self.indexes, self.records
        position, next_position = indexes.bracket(offset, in_memory=in_memory is not None)
        between = next_position - position
        if in_memory is not None:
            search_bytes = indexes.interval_bytes + SCAN_BYTES
            search_bytes = max(search_bytes, between)
            records.ensure_in_memory(position, search_bytes + in_memory)
        if between > SCAN_BYTES:
            # A large batch lies between them, so mostly each batch has an entry of its own.
            held = records.batch_holding(offset, next_position)
            if held is not None:
                return held
        try:
            found = records.find(offset, position)
        except CorruptLogError:
            if position == 0:
                raise
        else:
            if position == 0 or found is None or found.base_offset <= offset:
                return found
            if found.position > position:
                return found
        indexes.rebuild()
        return records.find(offset, indexes.floor_position(offset))

    def largest_timestamp(self) -> int:
        """Return the largest timestamp of the segment's records, -1 where none has any."""
        return self.indexes.largest_timestamp()[0]

    def first_batch_timestamp(self) -> int:
        """Return the largest timestamp of a closed segment's first batch, -1 where it has none.

        Raises CorruptLogError.
        """
        if self._head_timestamp is None:
            first = next(self.records.headers(), None)
            self._head_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        return self._head_timestamp

    def newest_ms(self) -> int:
        """Return the largest timestamp; where no record has one, or what has it is damaged, when
        the file was written.
        """
        with contextlib.suppress(CorruptLogError):
            largest = self.largest_timestamp()
            if largest >= 0:
                return largest
        name = file_name(self.base_offset, LOG)
        entries = self._environment.file_system.scan(self.location.directory.path)
        written_ms = [entry.modified_ms for entry in entries if entry.name == name]
        return max(self.created_ms, *written_ms, 0)

    def claimed_newest_ms(self) -> int:
        """Return the same according to the time index, and at least the time when the segment was
        created: fast, but unverified.
        """
        with contextlib.suppress(CorruptLogError):
            claimed = self.indexes.claimed_timestamp()
            if claimed >= 0:
                return claimed
        return self.created_ms

    def next_offset(self) -> Offset:
        """Return the offset after the last batch, found from the last index entry on.

        Raises CorruptLogError when the log does not end with a whole batch.
        """
        with contextlib.suppress(CorruptIndexError, CorruptLogError, FileNotFoundError):
            return self._next_offset_from(self.indexes.last_position())
        self.indexes.rebuild()
        return self._next_offset_from(self.indexes.last_position())

    def _next_offset_from(self, position: int) -> Offset:
        last = self.base_offset - 1
        for batch in self.records.headers(position):
            last = batch.last_offset
        return last + 1

    def hinted_position(self, offset: Offset) -> int | None:
        """Return the position of the batch that begins with ``offset`` if a read noted it."""
        return None if self._hints is None else self._hints.get(offset)

    def hint(self, offset: Offset, position: int) -> None:
        """Note that the batch that begins with ``offset`` is, or will be, at ``position``."""
        if self._hints is None:
            self._hints = {}
        elif len(self._hints) >= _MAX_HINTS:
            self._hints.clear()
        self._hints[offset] = position

    # Files

    def paths(self) -> list[str]:
        """Return the paths of the segment's files; the transaction index may not be there."""
        return [self.location.path(extension) for extension in SEGMENT_EXTENSIONS]

    def names(self) -> list[str]:
        """Return the names of the segment's files in the log's directory, as :meth:`paths`."""
        return [self.location.name(extension) for extension in SEGMENT_EXTENSIONS]

    def change_suffix(self, suffix: str) -> None:
        """Rename the files, the log first, so that the first rename alone removes the segment."""
        old_paths = self.paths()
        self.location.suffix = suffix
        for old_path, new_path in zip(old_paths, self.paths(), strict=True):
            with contextlib.suppress(FileNotFoundError):
                self._environment.file_system.rename(old_path, new_path)

    def remove(self) -> None:
        """Remove the files. Slices that are being sent stay readable."""
        self.close()
        for path in self.paths():
            self._environment.file_system.remove(path)

    def close(self) -> None:
        """Close the files; :meth:`become_inactive` first if they were appended to."""
        self.records.close()
        self.indexes.close()

    def __repr__(self) -> str:
        return f"Segment({self.location.path(LOG)}, size={self.records.size})"


def _reserves(config: TopicConfig) -> bool:
    """Tell whether blocks are reserved ahead: not where each append is flushed, for a flush into
    reserved blocks costs more than what the append saves.
    """
    return config.flush_policy != "ack" and not config.preallocate


def _first_timestamp(data: memoryview) -> int:
    """Return the largest timestamp of the first batch in ``data``."""
    return int(_INT64.unpack_from(data, MAX_TIMESTAMP_POSITION)[0])
