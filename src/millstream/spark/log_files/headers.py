"""Scans the batch headers of a partition's files for the log end, open transactions, and the first
record at or after a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from millstream.model.errors import CorruptIndexError, CorruptLogError
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.records.batch import (
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    Batch,
    header_at,
)
from millstream.records.legacy import check_not_legacy
from millstream.records.record import iter_records
from millstream.spark.log_files.segments import (
    IndexEntries,
    SegmentFile,
    floor,
    floor_position,
    list_segments,
)
from millstream.storage.directory import PRODUCER_SNAPSHOT, TIME_INDEX, file_name, parse_file_name
from millstream.storage.producer_snapshot import decode_snapshot
from millstream.storage.time_index import TimeIndex

_LENGTH = slice(LENGTH_POSITION, LENGTH_POSITION + 4)


def log_end(directory: Path, segments: Sequence[SegmentFile]) -> Offset:
    """Return the offset after the last whole batch."""
    if not segments:
        return 0
    last = segments[-1]
    end = last.base_offset
    for batch in headers_from(directory, segments[-1:], 2**63 - 1):
        end = batch.next_offset
    return end


def first_unstable(directory: Path, earliest: Offset, end: Offset) -> Offset:
    """Return the first offset of the oldest transaction that is open below ``end``; ``end`` if
    there is none.
    """
    start, unfinished = _snapshot(directory, earliest, end)
    segments = list_segments(directory)
    for batch in headers_from(directory, segments[max(floor(segments, start), 0) :], start):
        if batch.base_offset >= end:
            break
        if batch.is_control:
            unfinished.pop(batch.producer_id, None)
        elif batch.is_transactional:
            unfinished.setdefault(batch.producer_id, batch.base_offset)
    return min([end, *unfinished.values()])


def _snapshot(directory: Path, earliest: Offset, end: Offset) -> tuple[Offset, dict[int, Offset]]:
    """Return the newest producer snapshot up to ``end``: its offset, and the first offset of each
    producer's open transaction.
    """
    names = [parse_file_name(name) for name in os.listdir(directory)]
    offsets = sorted(
        each[0] for each in names if each and each[1] == PRODUCER_SNAPSHOT and each[0] <= end
    )
    for offset in reversed(offsets):
        path = directory / file_name(offset, PRODUCER_SNAPSHOT)
        # The broker removes old ones, and one that is damaged is not needed.
        with contextlib.suppress(OSError, CorruptIndexError):
            return offset, {
                entry.producer_id: entry.current_txn_first_offset
                for entry in decode_snapshot(path.read_bytes(), str(path))
                if entry.current_txn_first_offset != NO_OFFSET
            }
    return earliest, {}


def offset_at_time(directory: Path, timestamp: int, earliest: Offset, end: Offset) -> Offset | None:
    """Return the first offset in [earliest, end) whose record is at or after ``timestamp`` (ms)."""
    segments = list_segments(directory)
    first = max(floor(segments, earliest), 0)
    for number in range(first, len(segments)):
        segment = segments[number]
        is_last = number == len(segments) - 1
        if segment.base_offset >= end:
            return None
        if not is_last and _is_before(directory, segment, timestamp):
            continue
        for position, header in _headers(directory, segment, earliest):
            if header.base_offset >= end:
                return None
            if header.max_timestamp < timestamp or header.last_offset < earliest:
                continue
            for record in iter_records(_whole(directory, segment, position, header)):
                if record.timestamp >= timestamp and earliest <= record.offset < end:
                    return record.offset
    return None


def _is_before(directory: Path, segment: SegmentFile, timestamp: int) -> bool:
    """Return True if the time index shows that a closed segment ends before a time; False if
    unsure.
    """
    try:
        data = segment.path(directory, TIME_INDEX).read_bytes()
    except OSError:
        return False
    size = TimeIndex.entry.size
    if not data or len(data) % size:
        return False
    largest: int = TimeIndex.entry.unpack_from(data, len(data) - size)[0]
    return 0 < largest < timestamp


def headers_from(
    directory: Path, segments: Sequence[SegmentFile], start: Offset
) -> Iterator[Batch]:
    """Yield the headers of these segments, from about ``start`` on in the first of them."""
    for segment in segments:
        for _, header in _headers(directory, segment, start):
            yield header


def _headers(directory: Path, segment: SegmentFile, start: Offset) -> Iterator[tuple[int, Batch]]:
    try:
        descriptor = os.open(segment.path(directory), os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        size = os.fstat(descriptor).st_size
        position = floor_position(descriptor, IndexEntries(directory, segment).floor(start))
        while size - position >= HEADER_SIZE:
            header = os.pread(descriptor, HEADER_SIZE, position)
            if not any(header[_LENGTH]):
                return  # preallocated space
            batch = _header(descriptor, header, position)
            if position + batch.size > size:
                return
            yield position, batch
            position += batch.size
    finally:
        os.close(descriptor)


def _header(descriptor: int, header: bytes, position: int) -> Batch:
    try:
        return header_at(header)
    except CorruptLogError:
        # A message of an older format is recognised by its CRC, which covers all of it.
        size = int.from_bytes(header[_LENGTH], "big") + LENGTH_OVERHEAD
        check_not_legacy(os.pread(descriptor, size, position))
        raise


def _whole(directory: Path, segment: SegmentFile, position: int, header: Batch) -> Batch:
    with segment.path(directory).open("rb") as file:
        file.seek(position)
        return header_at(file.read(header.size))
