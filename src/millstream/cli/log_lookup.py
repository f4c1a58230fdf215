"""How a log finds a record, step by step, for `log explain`: names, index, position, batches.

The steps are those of ``storage.segments``, ``.offset_index``, ``.time_index`` and
``.file_records``, done again on the files as they lie there and written down, so that the files of
a broker at work, and of Apache Kafka, can be looked at without opening a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from millstream.cli.failures import CommandFailedError
from millstream.cli.log_dump import damage_of
from millstream.inspection.partition_files import PartitionFiles, last_offset, max_timestamp
from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.records.batch import Batch
from millstream.records.legacy_records import iter_legacy_records
from millstream.records.log_entries import LogEntry
from millstream.records.record import Record, iter_records
from millstream.storage.directory import (
    OFFSET_INDEX,
    TIME_INDEX,
    PartitionDirectory,
    file_name,
)
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison of a binary search: what was looked at, and whether it was at most the
    target.
    """

    text: str
    at_most: bool


@dataclass(frozen=True, slots=True)
class Scanned:
    """One entry of a log that a search came by."""

    position: int
    size: int
    first_offset: Offset
    last_offset: Offset
    max_timestamp: int
    is_valid: bool


@dataclass(slots=True)
class SegmentSearch:
    """The choice of a segment: by its name for an offset, by its largest timestamp for a time."""

    compared: list[Compared] = field(default_factory=list)
    base_offset: Offset = 0
    size: int = 0


@dataclass(slots=True)
class IndexSearch:
    """The choice of an index entry: None when all lie beyond the target."""

    name: str = ""
    entries: int = 0
    compared: list[Compared] = field(default_factory=list)
    chosen: str | None = None


@dataclass(slots=True)
class Lookup:
    """Everything that was done to find a record."""

    log_start_offset: Offset
    log_end_offset: Offset
    segment_count: int
    segment: SegmentSearch = field(default_factory=SegmentSearch)
    time_index: IndexSearch | None = None
    offset_index: IndexSearch = field(default_factory=IndexSearch)
    position: int = 0
    scanned: list[Scanned] = field(default_factory=list)
    batch: LogEntry | None = None
    record: Record | None = None
    damage: str | None = None
    """What is wrong where the search ended, None where it met no damage."""


def records_of(entry: LogEntry) -> Iterator[Record]:
    """Yield the records in an entry of a log."""
    return iter_records(entry) if isinstance(entry, Batch) else iter_legacy_records(entry)


def look_up_offset(directory: PartitionDirectory, offset: Offset) -> Lookup:
    """Find the record at ``offset``, or the first one after it where compaction took it.

    Raises CommandFailedError when the log does not reach there.
    """
    files = PartitionFiles(directory)
    lookup = _begin(files)
    if not lookup.log_start_offset <= offset < lookup.log_end_offset:
        raise CommandFailedError(
            f"offset {offset} is not in {directory.topic_partition}: {_range(lookup)}"
        )
    names = files.base_offsets
    slot = _floor(
        len(names),
        lambda at: names[at] <= offset,
        lambda at: file_name(names[at], ""),
        lookup.segment.compared,
    )
    # Where compaction has emptied the rest of a segment, the next one has the first record.
    for base_offset in names[max(slot, 0) :]:
        _look_into(files, lookup, base_offset, offset)
        for entry in _scan(files, lookup):
            if last_offset(entry) >= offset:
                found = next((r for r in records_of(entry) if r.offset >= offset), None)
                if found is not None:
                    lookup.batch, lookup.record = entry, found
                    return lookup
        if lookup.damage is not None:
            break
    return lookup


def look_up_timestamp(directory: PartitionDirectory, timestamp: int) -> Lookup:
    """Find the first record at or after a time, as ListOffsets does."""
    files = PartitionFiles(directory)
    lookup = _begin(files)
    start = lookup.log_start_offset
    slot = max(0, sum(base_offset <= start for base_offset in files.base_offsets) - 1)
    for base_offset in files.base_offsets[slot:]:
        largest = files.largest_timestamp(base_offset)
        reaches = largest >= timestamp
        text = f"{file_name(base_offset, '')} up to {largest}"
        lookup.segment.compared.append(Compared(text, not reaches))
        if not reaches:
            continue
        entries = files.index(base_offset, TIME_INDEX, TimeIndex.entry)
        lookup.time_index = IndexSearch(file_name(base_offset, TIME_INDEX), len(entries))
        chosen = _search(lookup.time_index, entries, timestamp, base_offset, is_time=True)
        from_offset = start if chosen is None else max(start, base_offset + chosen[1])
        _look_into(files, lookup, base_offset, from_offset)
        for entry in _scan(files, lookup):
            if max_timestamp(entry) < timestamp or last_offset(entry) < start:
                continue
            for record in records_of(entry):
                if record.timestamp >= timestamp and record.offset >= start:
                    lookup.batch, lookup.record = entry, record
                    return lookup
        if lookup.damage is not None:
            break
    return lookup


def _scan(files: PartitionFiles, lookup: Lookup) -> Iterator[LogEntry]:
    """Yield the sound entries of the chosen segment; damage ends the search, and is noted."""
    base_offset, end = lookup.segment.base_offset, lookup.position
    try:
        for position, entry in files.entries(base_offset, lookup.position):
            lookup.scanned.append(_scanned(position, entry))
            if not entry.is_valid:
                lookup.damage = damage_of(entry, position)
                return
            yield entry
            end = position + entry.size
    except CorruptLogError:
        pass  # no entry begins there: said below
    left = files.log(base_offset)[end:]
    if any(left):
        lookup.damage = f"{len(left)} bytes at position {end} are not a complete batch"


def _begin(files: PartitionFiles) -> Lookup:
    return Lookup(files.start_offset(), files.end_offset(), len(files.base_offsets))


def _range(lookup: Lookup) -> str:
    first, end = lookup.log_start_offset, lookup.log_end_offset
    if first >= end:
        return f"the log is empty, and the next record gets offset {end}"
    return f"the log holds {first} to {end - 1}, and the next record gets offset {end}"


def _look_into(files: PartitionFiles, lookup: Lookup, base_offset: Offset, offset: Offset) -> None:
    """Choose the segment, and the position in it from its offset index."""
    lookup.segment.base_offset = base_offset
    lookup.segment.size = len(files.log(base_offset))
    lookup.scanned.clear()
    entries = files.index(base_offset, OFFSET_INDEX, OffsetIndex.entry)
    lookup.offset_index = IndexSearch(file_name(base_offset, OFFSET_INDEX), len(entries))
    chosen = _search(lookup.offset_index, entries, offset - base_offset, base_offset)
    lookup.position = 0 if chosen is None else chosen[1]


def _search(
    search: IndexSearch,
    entries: Sequence[tuple[int, ...]],
    target: int,
    base_offset: Offset,
    *,
    is_time: bool = False,
) -> tuple[int, ...] | None:
    def text(at: int) -> str:
        key, value = entries[at]
        if is_time:
            return f"timestamp {key}, offset {base_offset + value}"
        return f"offset {base_offset + key}, position {value}"

    slot = _floor(len(entries), lambda at: entries[at][0] <= target, text, search.compared)
    if slot < 0:
        return None
    search.chosen = text(slot)
    return entries[slot]


def _floor(
    count: int,
    is_at_most: Callable[[int], bool],
    text: Callable[[int], str],
    compared: list[Compared],
) -> int:
    """Return the last slot that is at most the target, -1 if none is; note every comparison."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        at_most = is_at_most(middle)
        compared.append(Compared(text(middle), at_most))
        if at_most:
            low = middle + 1
        else:
            high = middle
    return low - 1


def _scanned(position: int, entry: LogEntry) -> Scanned:
    first = entry.base_offset if isinstance(entry, Batch) else entry.offset
    return Scanned(
        position, entry.size, first, last_offset(entry), max_timestamp(entry), entry.is_valid
    )
