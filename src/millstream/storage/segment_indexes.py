"""The offset index and the time index of one segment, kept consistent with its log.

An entry is added to both for a batch that is written after more than ``index.interval.bytes`` of
log without one; the time index takes it only if the largest timestamp has grown. The indexes hold
nothing that the log does not, so whenever one is missing, damaged or contradicts the log, both are
rebuilt from the batch headers.
"""

from __future__ import annotations

import contextlib
from typing import Final

from millstream.model.errors import CorruptIndexError, CorruptLogError
from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.records.scan import BatchScanner
from millstream.storage.directory import PartitionDirectory, SegmentLocation
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import BatchPosition, FileRecords
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.read_ahead import ColdReadError, Preparation
from millstream.storage.time_index import TimeIndex

_UNKNOWN: Final = -2
"""A largest timestamp that was not read yet."""

_CHECKED_HERE: Final = 8192
"""How many entries the owner's thread checks itself (about a millisecond); more are checked on
another thread.
"""

_END_BYTES: Final = 65_536
"""Usually more than what follows the last index entry."""


class IndexCheck(Preparation):
    """Work for another thread: load both indexes of a segment and check them against its log."""

    __slots__ = ("detached",)

    def __init__(self, indexes: SegmentIndexes) -> None:
        super().__init__()
        self.detached = indexes.detached()

    def prepare(self) -> None:
        """Load them; damaged ones are rebuilt in memory. Raises CorruptLogError and OSError."""
        try:
            self.detached.load()
        finally:
            self.detached.records.close()


class SegmentIndexes:
    """Both indexes. They are loaded when first needed, to look up or to append."""

    __slots__ = (
        "_check",
        "_cuts",
        "_environment",
        "_is_detached",
        "_largest_timestamp",
        "_location",
        "_offset_of_largest",
        "_unindexed_bytes",
        "_verified",
        "interval_bytes",
        "offset_index",
        "records",
        "time_index",
        "to_append",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        location: SegmentLocation,
        records: FileRecords,
        *,
        max_bytes: int,
        interval_bytes: int,
        is_detached: bool = False,
    ) -> None:
        self._environment = environment
        self._location = location
        self._is_detached = is_detached
        self._check: IndexCheck | None = None
        self._cuts = records.cuts
        """How often the log had been cut when a detached object was made."""
        self.records = records
        """The log that the indexes are for."""
        self.offset_index = OffsetIndex(environment, location, max_bytes, is_detached=is_detached)
        self.time_index = TimeIndex(environment, location, max_bytes, is_detached=is_detached)
        self.interval_bytes = interval_bytes
        self.to_append = False
        """True while the segment is the active one and its entries are in memory."""
        self._verified = False
        self._largest_timestamp = _UNKNOWN
        self._offset_of_largest = location.base_offset
        self._unindexed_bytes = 0

    @property
    def base_offset(self) -> Offset:
        """Base offset of the segment."""
        return self._location.base_offset

    @property
    def is_full(self) -> bool:
        """True when the next entry belongs to the next segment. Asked of the active segment."""
        offsets, times = self.offset_index, self.time_index
        # The time index keeps a slot for its last entry.
        return offsets.count >= offsets.max_entries or times.count >= times.max_entries - 1

    def create(self) -> None:
        """Recreate both, empty and ready to append."""
        self.offset_index.create()
        self.time_index.create()
        self._begin()

    def collect(self) -> None:
        """Start empty, in memory; :meth:`finish` writes the files whose content differs."""
        self.offset_index.collect()
        self.time_index.collect()
        self._begin()

    def _begin(self) -> None:
        self.to_append = True
        self._verified = True
        self._largest_timestamp = NO_TIMESTAMP
        self._offset_of_largest = self.base_offset
        self._unindexed_bytes = 0

    def prepare_append(self) -> None:
        """Load the entries into memory, so that more can be added. Raises CorruptLogError."""
        if not self.to_append:
            self.largest_timestamp()
            self._load(to_append=True)
            self.to_append = True

    def add(self, position: int, size: int, last_offset: Offset, max_timestamp: int) -> bool:
        """Record a batch of ``size`` bytes at ``position``; True if it fills an index."""
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp = max_timestamp
            self._offset_of_largest = last_offset
        if self._unindexed_bytes > self.interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self._largest_timestamp, self._offset_of_largest)
            self._unindexed_bytes = size
            return self.is_full
        self._unindexed_bytes += size
        return False

    def lead(self, scanner: BatchScanner, next_offset: Offset, *, max_offset: Offset) -> None:
        """Initialise a scanner with the state at the log end."""
        scanner.begin(next_offset, max_offset=max_offset, interval_bytes=self.interval_bytes)
        scanner.unindexed_bytes = self._unindexed_bytes
        scanner.largest_timestamp = self._largest_timestamp
        scanner.offset_of_largest = self._offset_of_largest

    def have_room_for(self, entries: int) -> bool:
        """Tell whether so many batches with entries go into this segment."""
        offsets, times = self.offset_index, self.time_index
        return entries <= min(
            offsets.max_entries - offsets.count, times.max_entries - 1 - times.count
        )

    def extend(self, scanner: BatchScanner) -> None:
        """Take over the entries that a scan has found, and how far it has come."""
        entries = scanner.index_entries
        if entries:
            self.offset_index.extend([(entry.last_offset, entry.position) for entry in entries])
            self.time_index.extend(
                [(entry.largest_timestamp, entry.offset_of_largest) for entry in entries]
            )
            entries.clear()
        self._largest_timestamp = scanner.largest_timestamp
        self._offset_of_largest = scanner.offset_of_largest
        self._unindexed_bytes = scanner.unindexed_bytes

    def finish(self) -> None:
        """Close the segment's indexes: last entry of the time index, files cut to size."""
        if not self.to_append:
            return
        self.time_index.maybe_append(self._largest_timestamp, self._offset_of_largest)
        self.offset_index.trim()
        self.time_index.trim()
        self.close()

    def close(self) -> None:
        """Close the files and forget the entries; a detached object closes its log as well."""
        self.offset_index.close()
        self.time_index.close()
        self.to_append = False
        if self._is_detached:
            self.records.close()

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries from ``offset`` on; the log has been cut already. Where it is damaged
        below that, timestamps behind the damage do not count.
        """
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self._unindexed_bytes = 0
        self._largest_timestamp, self._offset_of_largest = self.time_index.last_entry
        position = self.offset_index.position(self._offset_of_largest)
        with contextlib.suppress(CorruptLogError):
            for batch in self.records.headers(position):
                if batch.max_timestamp > self._largest_timestamp:
                    self._largest_timestamp = batch.max_timestamp
                    self._offset_of_largest = batch.last_offset

    def rebuild(self) -> None:
        """Make both indexes from the log; a detached object makes them in memory alone.

        Raises CorruptLogError.
        """
        to_append = self.to_append
        if self._is_detached:
            self.collect()
        else:
            self.create()
        for batch in self.records.headers():
            self.add(batch.position, batch.size, batch.last_offset, batch.max_timestamp)
        if self._is_detached:
            self.time_index.maybe_append(self._largest_timestamp, self._offset_of_largest)
            self.to_append = False
        elif to_append:
            self._unindexed_bytes = 0
        else:
            self.finish()

    # Another thread

    def detached(self) -> SegmentIndexes:
        """Return a second object for the same files, as they are now, for a look-up on another
        thread. It opens files of its own, writes none and reads no mapping, so the files may be cut
        meanwhile. Any thread may call this.
        """
        here, records = self._location, self.records
        directory = here.directory
        location = SegmentLocation(
            PartitionDirectory(directory.parent, directory.name, directory.topic_partition),
            here.base_offset,
            here.suffix,
        )
        detached = SegmentIndexes(
            self._environment,
            location,
            FileRecords(self._environment, location, records.size),
            max_bytes=self.offset_index.max_bytes,
            interval_bytes=self.interval_bytes,
            is_detached=True,
        )
        detached._cuts = records.cuts
        detached._verified = self._verified
        return detached

    def adopt(self, detached: SegmentIndexes) -> None:
        """Use the results of a detached object, unless the log was written to or cut since: the
        largest timestamp, the entries that it loaded, and those that it had to make anew, which are
        written to the files. On the thread that owns the log. Raises OSError.
        """
        records = self.records
        is_current = detached._cuts == records.cuts and detached.records.size == records.size
        if self.to_append or not is_current:
            detached.close()
            return
        is_better = detached._verified or self._largest_timestamp == _UNKNOWN
        if is_better and detached._largest_timestamp != _UNKNOWN:
            self._largest_timestamp = detached._largest_timestamp
            self._offset_of_largest = detached._offset_of_largest
        self._verified |= detached._verified
        was_rebuilt = detached.time_index.is_unwritten
        if detached.is_ready:
            self.offset_index.adopt(detached.offset_index)
            self.time_index.adopt(detached.time_index)
        detached.close()
        if was_rebuilt:
            self.offset_index.trim()
            self.time_index.trim()
            self.close()

    # Looking up

    @property
    def is_ready(self) -> bool:
        """True while the entries are loaded and checked against the log."""
        return self.to_append or (
            self._verified and self.offset_index.is_loaded and self.time_index.is_loaded
        )

    @property
    def known_timestamp(self) -> int | None:
        """The segment's largest timestamp, -1 if it has none; None where it has not been read yet.

        The unverified value of the time index is used until the indexes are checked against the
        log.
        """
        return None if self._largest_timestamp == _UNKNOWN else self._largest_timestamp

    def ensure_in_memory(self) -> None:
        """Raise ColdReadError if the first look-up would block on the disk, either for the files or
        for the end of the log that they are checked against, or if there are so many entries to
        check that another thread does it in any case. Raises CorruptLogError; OSError.
        """
        if self.offset_index.is_loaded or self.records.size <= self.interval_bytes:
            return
        if self.records.size // max(self.interval_bytes, 1) > _CHECKED_HERE:
            self._ensure_checked()
            return
        cold = self.offset_index.cold_ranges() + self.time_index.cold_ranges()
        if not self._verified:
            cold += self.records.cold_ranges(0, _END_BYTES)
            cold += self.records.cold_ranges(max(0, self.records.size - _END_BYTES), _END_BYTES)
        if cold:
            raise ColdReadError(cold)

    def _ensure_checked(self) -> None:
        check, self._check = self._check, None
        if check is None or check.detached._cuts != self.records.cuts:
            self._check = IndexCheck(self)
            raise ColdReadError(preparations=[self._check])
        if check.failure is not None:
            self._check = check
            raise check.failure
        if check.is_done:
            self.adopt(check.detached)
        elif check.missing is None:
            self._check = check
            raise ColdReadError(preparations=[check])

    def load(self) -> None:
        """Load the entries of both indexes for look-ups. Raises CorruptLogError; OSError."""
        self._load(to_append=False)

    def floor_position(self, offset: Offset) -> int:
        """Return the position of a batch at or before the one that holds ``offset``."""
        return self.bracket(offset)[0]

    def bracket(self, offset: Offset, *, in_memory: bool = False) -> tuple[int, int]:
        """Return the positions of two batches, one at or before the one that holds ``offset`` and
        the next that has an entry; the same twice where none has. Where it has to be ``in_memory``,
        raises what :meth:`ensure_in_memory` raises.
        """
        index = self.offset_index
        if not index.is_loaded:
            if in_memory:
                self.ensure_in_memory()
            if self.records.size <= self.interval_bytes:
                return 0, 0
            self._load(to_append=False)
        return index.bracket(offset)

    def time_floor_position(self, timestamp: int, start_offset: Offset) -> int:
        """Return a position at or before the first batch that holds a record at or after both."""
        self._load(to_append=False)
        entry = self.time_index.lookup(timestamp)
        return self.offset_index.position(max(entry.offset, start_offset))

    def offset_beyond(self, position: int) -> Offset | None:
        """Return the offset of the first entry at or beyond ``position``; None if none is."""
        if self.records.size <= self.interval_bytes and not self.to_append:
            return None
        self._load(to_append=False)
        return self.offset_index.upper_bound(position)

    def last_position(self) -> int:
        """Return the position of the last indexed batch, 0 if none is; only its entry is read.

        Raises CorruptIndexError, FileNotFoundError.
        """
        if self.records.size <= self.interval_bytes:
            return 0
        last = self.offset_index.last_entry
        if last is None:
            return 0
        if last.position >= self.records.size:
            raise CorruptIndexError(f"{self.offset_index.path}: it leads beyond the log")
        return last.position

    def largest_timestamp(self) -> tuple[int, Offset]:
        """Return the largest timestamp of the segment, -1 if there is none, and the last offset of
        the batch that holds it. Raises CorruptLogError.
        """
        if not self._verified:
            if self.records.size:
                self._load(to_append=False)
            self._largest_timestamp = _UNKNOWN
        if self._largest_timestamp == _UNKNOWN:
            self._read_largest()
        return self._largest_timestamp, self._offset_of_largest

    def claimed_timestamp(self) -> int:
        """Return the largest timestamp according to the time index, at the cost of one read.

        It may be wrong, unlike :meth:`largest_timestamp`, which reads the log. Impossible values
        are not used: no entry at all, or the zeros at the end of a file that was not cut to its
        entries. Raises CorruptLogError.
        """
        if self._largest_timestamp == _UNKNOWN:
            try:
                self._read_largest()
            except (CorruptIndexError, FileNotFoundError):
                return self.largest_timestamp()[0]
        is_zero = self._largest_timestamp == 0 and self._offset_of_largest == self.base_offset
        if (self._largest_timestamp < 0 or is_zero) and self.records.size:
            return self.largest_timestamp()[0]
        return self._largest_timestamp

    def _read_largest(self) -> None:
        if self.records.size == 0:
            self._largest_timestamp = NO_TIMESTAMP
        else:
            self._largest_timestamp, self._offset_of_largest = self.time_index.last_entry

    def _load(self, *, to_append: bool) -> None:
        try:
            self.offset_index.load(to_append=to_append)
            self.time_index.load(to_append=to_append)
            if not self._verified:
                self._verify()
                self._verified = True
        except (CorruptIndexError, FileNotFoundError):
            self.rebuild()
            self.offset_index.load(to_append=to_append)
            self.time_index.load(to_append=to_append)

    def _verify(self) -> None:
        """Check the last entries against the log, which detects zeros and stale entries."""
        if self.records.size == 0:
            if self.offset_index.count or self.time_index.count:
                raise CorruptIndexError(f"{self.offset_index.path}: entries for an empty log")
            return
        position = self.last_position()
        first = self._batch_at(position)
        if position == 0 and self._lacks_entries():
            raise CorruptIndexError(f"{self.offset_index.path}: it has no entries")
        timestamp, offset = self.time_index.last_entry
        if timestamp == NO_TIMESTAMP:
            sound = self._batch_at(0).max_timestamp < 0
        else:
            holder = self.records.find(offset, self.offset_index.position(offset))
            sound = holder is not None and holder.max_timestamp == timestamp
        if first is None or not sound:
            raise CorruptIndexError(f"{self.time_index.path}: its last entry is not the log's")

    def _batch_at(self, position: int) -> BatchPosition:
        try:
            return next(self.records.headers(position))
        except CorruptLogError as error:
            if position == 0:
                raise
            raise CorruptIndexError(f"{self.offset_index.path}: {error}") from None

    def _lacks_entries(self) -> bool:
        """True when a batch begins so far into the log that it must have an entry."""
        return any(batch.position > self.interval_bytes for batch in self.records.headers())
