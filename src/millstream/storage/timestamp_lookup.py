"""Look-ups by time: the first record at or after a timestamp, the first with the largest one.

A look-up goes through the segments in order and passes over those whose largest timestamp is too
small. That timestamp is known for a segment that was written since the log was opened, and for one
that was asked before. Of any other one the last entry of its time index is read, and nothing else.
The chosen segment is searched: its indexes are checked against its log, and its batches are read
from the position that they give.

The thread that owns the log opens and loads no index of a closed segment and does not block on the
disk: :meth:`TimestampLookup.advance` raises ColdReadError with the work for another thread, and
continues from its result when called again. Only a search that finds everything in memory,
including the indexes, is done at once. Kafka: ``UnifiedLog.fetchOffsetByTimestamp``,
``LogSegment.findOffsetByTimestamp``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.offsets import NO_TIMESTAMP, LeaderEpoch, Offset
from millstream.records.batch import ATTRIBUTES_POSITION, CODEC_MASK, HEADER_SIZE
from millstream.records.record import iter_records
from millstream.storage.file_records import SCAN_BYTES, BatchPosition, FileRecords
from millstream.storage.read_ahead import ColdReadError, Preparation
from millstream.storage.segment import Segment
from millstream.storage.segment_indexes import SegmentIndexes
from millstream.storage.segments import Segments

_WARM_BYTES: Final = 256 * 1024
"""How far the owner's thread searches a log; a longer search continues on another thread."""

_WARM_RECORDS: Final = 2_000
"""How many records it looks at in one batch, some milliseconds."""

_WARM_COMPRESSED_BYTES: Final = 4_096
"""How large a compressed batch may be that it opens: its records may take a thousand times that."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by its time (ListOffsets)."""

    timestamp: int
    offset: Offset
    leader_epoch: LeaderEpoch


class TimestampLookup:
    """One look-up by time, which is advanced until it has an answer.

    ``timestamp`` in milliseconds; None asks for the first record with the largest timestamp of the
    log (KIP-734), or, where no record has a timestamp, for the first record, as in Kafka.
    """

    __slots__ = ("_claims", "_is_urgent", "_searches", "_timestamp")

    def __init__(self, timestamp: int | None) -> None:
        self._timestamp = timestamp
        self._claims: _TimestampClaims | None = None
        self._searches: dict[Segment, _SegmentSearch] = {}
        self._is_urgent = False
        """True if another thread did not find a file: the owner's thread then looks for it."""

    def advance(
        self, segments: Segments, log_start_offset: Offset, *, wait_for_disk: bool
    ) -> TimestampOffset | None:
        """Return what is found, None where no record is late enough.

        Records before ``log_start_offset`` do not count when a timestamp was given; markers count,
        as in Kafka. With ``wait_for_disk`` False, raises ColdReadError if there is work for another
        thread; call again once it is done. Raises CorruptLogError; OSError.
        """
        while True:
            self._take_claims()
            try:
                if self._timestamp is None:
                    return self._largest(segments)
                return self._first_from(self._timestamp, segments, log_start_offset)
            except ColdReadError as cold:
                if not wait_for_disk and not self._is_urgent:
                    raise
                for work in cold.preparations:
                    work.run_here()
                self._is_urgent = False

    def _first_from(
        self, timestamp: int, segments: Segments, start_offset: Offset
    ) -> TimestampOffset | None:
        candidates = segments.starting_with(start_offset)
        for number, segment in enumerate(candidates):
            # Empty segments, which compaction leaves, say nothing about records.
            if not segment.size:
                continue
            largest = segment.indexes.known_timestamp
            if largest is None:
                raise self._ask_for_claims(candidates[number:], enough=timestamp)
            if largest >= timestamp:
                found = self._search(segment, timestamp, start_offset)
                if found is not None:
                    return found
        return None

    def _largest(self, segments: Segments) -> TimestampOffset | None:
        filled = [segment for segment in segments if segment.size]
        while filled:
            holder, largest = filled[0], NO_TIMESTAMP
            for segment in filled:
                known = segment.indexes.known_timestamp
                if known is None:
                    raise self._ask_for_claims(filled, enough=None)
                if known > largest:
                    holder, largest = segment, known
            found = self._search(holder, largest, holder.base_offset)
            if holder.indexes.known_timestamp == largest:
                return found
        return None

    def _ask_for_claims(self, segments: Sequence[Segment], *, enough: int | None) -> ColdReadError:
        self._claims = _TimestampClaims(segments, enough)
        return ColdReadError(preparations=[self._claims])

    def _take_claims(self) -> None:
        claims, self._claims = self._claims, None
        if claims is not None:
            claims.apply()
            if claims.failure is not None:
                raise claims.failure
            self._is_urgent |= claims.missing is not None

    def _search(
        self, segment: Segment, timestamp: int, start_offset: Offset
    ) -> TimestampOffset | None:
        search = self._searches.pop(segment, None)
        if search is not None and search.is_for(timestamp, start_offset):
            if search.failure is not None:
                raise search.failure
            if search.is_done:
                self._searches[segment] = search
                search.apply()
                return search.found
            self._is_urgent |= search.missing is not None
        position = None
        if segment.indexes.is_ready:
            here = _LogSearch(segment.records, timestamp, start_offset)
            if here.run_warm(segment.indexes.time_floor_position(timestamp, start_offset)):
                return here.found
            position = here.position
        search = _SegmentSearch(segment, timestamp, start_offset, position)
        self._searches[segment] = search
        raise ColdReadError(preparations=[search])


class _LogSearch:
    """The search in the ``.log`` of one segment for the first record at or after both."""

    __slots__ = ("_records", "_start_offset", "_timestamp", "found", "position")

    def __init__(self, records: FileRecords, timestamp: int, start_offset: Offset) -> None:
        self._records = records
        self._timestamp = timestamp
        self._start_offset = start_offset
        self.found: TimestampOffset | None = None
        self.position = 0
        """The position at which :meth:`run_warm` stopped."""

    def run(self, position: int) -> None:
        """Search from ``position`` up to the end. Raises CorruptLogError; OSError."""
        for batch in self._records.headers(position):
            if self._look_into(batch):
                return

    def run_warm(self, position: int) -> bool:
        """Search as far as the log is in memory; False where the search is not at its end."""
        records = self._records
        self.position = position
        if records.cold_ranges(position, SCAN_BYTES):
            return False
        for batch in records.headers(position):
            self.position = batch.position
            if batch.position - position > _WARM_BYTES or records.cold_ranges(
                batch.position, batch.size + SCAN_BYTES
            ):
                return False
            if self._may_hold_it(batch) and self._takes_long(batch):
                return False
            if self._look_into(batch):
                break
        return True

    def _may_hold_it(self, batch: BatchPosition) -> bool:
        return batch.max_timestamp >= self._timestamp and batch.last_offset >= self._start_offset

    def _takes_long(self, batch: BatchPosition) -> bool:
        """Tell whether to look at the records of a batch is work for another thread."""
        if batch.last_offset - batch.base_offset >= _WARM_RECORDS:
            return True
        if batch.size <= _WARM_COMPRESSED_BYTES:
            return False
        head = self._records.chunk(batch.position, HEADER_SIZE)
        return head[ATTRIBUTES_POSITION + 1] & CODEC_MASK != 0

    def _look_into(self, batch: BatchPosition) -> bool:
        if not self._may_hold_it(batch):
            return False
        timestamp, start_offset = self._timestamp, self._start_offset
        for record in iter_records(self._records.batch_at(batch)):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                self.found = TimestampOffset(record.timestamp, record.offset, batch.leader_epoch)
                return True
        return False


class _TimestampClaims(Preparation):
    """What the time indexes of segments claim to be their largest timestamp, up to the first claim
    that is ``enough``: read from each index's last entry.

    An index that is missing, empty or obviously wrong is checked against its log at once.
    """

    __slots__ = ("_claims", "_enough", "_segments")

    def __init__(self, segments: Sequence[Segment], enough: int | None) -> None:
        super().__init__()
        self._segments = segments
        self._enough = enough
        self._claims: list[tuple[SegmentIndexes, SegmentIndexes]] = []

    def prepare(self) -> None:
        for segment in self._segments:
            if not segment.size or segment.indexes.known_timestamp is not None:
                continue
            indexes = segment.indexes.detached()
            claimed = indexes.claimed_timestamp()
            self._claims.append((segment.indexes, indexes))
            if self._enough is not None and claimed >= self._enough:
                return

    def apply(self) -> None:
        """Store the claims, unless the segment was written or cut meanwhile. On the owner's
        thread.
        """
        for indexes, detached in self._claims:
            indexes.adopt(detached)
        self._claims.clear()


class _SegmentSearch(Preparation):
    """The search for a timestamp in one segment, as it is when this object is made.

    Without a ``position`` to begin at, the indexes are loaded, checked against the log and used.
    """

    __slots__ = ("_indexes", "_key", "_position", "_search", "_segment")

    def __init__(
        self, segment: Segment, timestamp: int, start_offset: Offset, position: int | None
    ) -> None:
        super().__init__()
        self._segment = segment
        self._key = (timestamp, start_offset, segment.records.cuts)
        self._position = position
        self._indexes = segment.indexes.detached()
        self._search = _LogSearch(self._indexes.records, timestamp, start_offset)

    @property
    def found(self) -> TimestampOffset | None:
        """The record that was found."""
        return self._search.found

    def is_for(self, timestamp: int, start_offset: Offset) -> bool:
        """Tell whether the result is for this search, and nothing was cut off since."""
        return self._key == (timestamp, start_offset, self._segment.records.cuts)

    def prepare(self) -> None:
        timestamp, start_offset, _ = self._key
        position = self._position
        try:
            if position is None:
                self._indexes.largest_timestamp()
                position = self._indexes.time_floor_position(timestamp, start_offset)
            self._search.run(position)
        finally:
            self._indexes.records.close()

    def apply(self) -> None:
        """Have the segment use the indexes that were loaded. On the owner's thread."""
        self._segment.indexes.adopt(self._indexes)
