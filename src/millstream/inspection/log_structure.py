"""The segments of a partition's log with the entries of their indexes, as a drawing needs them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.inspection.partition_files import PartitionFiles, last_offset, max_timestamp
from millstream.model.errors import ConfigError, CorruptLogError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch
from millstream.storage.directory import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    PartitionDirectory,
    file_name,
    parse_directory_name,
)
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex

ENTRIES: Final = 100_000
"""How many index entries are told in all: those of about 200 MB of log at Kafka's defaults."""
BATCHES: Final = 2_000
"""How many batches are told of one segment."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An entry of the offset index: the batch that ends with ``offset`` begins at a byte."""

    offset: Offset
    position: int


@dataclass(frozen=True, slots=True)
class TimeEntry:
    """An entry of the time index: no record up to ``offset`` is newer than ``timestamp`` (ms)."""

    timestamp: int
    offset: Offset


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a batch lies in its segment's file, and what its header says."""

    position: int
    size_bytes: int
    first_offset: Offset
    last_offset: Offset
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class SegmentStructure:
    """One segment. ``is_whole`` is False where entries of its indexes were left out."""

    base_offset: Offset
    size_bytes: int
    active: bool
    is_whole: bool = True
    index: Sequence[IndexEntry] = field(default_factory=tuple)
    time_index: Sequence[TimeEntry] = field(default_factory=tuple)
    batches: Sequence[BatchPlace] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class LogStructure:
    """A log: ``start_offset`` to ``end_offset`` (exclusive), in segments."""

    directory: str
    start_offset: Offset
    end_offset: Offset
    segments: Sequence[SegmentStructure]


def partition_directory(
    directories: Sequence[Path], topic_partition: TopicPartition
) -> PartitionDirectory:
    """Return where a partition lies among log directories.

    ConfigError when it lies in none; a name that is not a partition's, such as one that leads out
    of the directory, lies in none either.
    """
    name = str(topic_partition)
    parsed = parse_directory_name(name)
    if parsed is not None and parsed[0] == topic_partition and os.sep not in name:
        for directory in directories:
            if (directory / name).is_dir():
                return PartitionDirectory(str(directory), name, topic_partition)
    looked = ", ".join(map(str, directories))
    raise ConfigError(f"there is no directory {name} in {looked}")


def log_structure(directory: PartitionDirectory, offset: Offset | None = None) -> LogStructure:
    """Return the structure of a log; index entries first of the segments nearest to ``offset``
    (by default the newest), `ENTRIES` in all. Batches are told of the nearest segment.

    ConfigError when the directory has no segments. FileNotFoundError when the broker deletes a
    segment meanwhile.
    """
    files = PartitionFiles(directory)
    names = files.base_offsets
    target = names[-1] if offset is None else offset
    nearest = max((at for at, base in enumerate(names) if base <= target), default=0)
    found: dict[int, SegmentStructure] = {}
    room = ENTRIES
    for at in sorted(range(len(names)), key=lambda at: abs(at - nearest)):
        found[at] = segment = _segment(files, directory, at, room, with_batches=at == nearest)
        room -= len(segment.index) + len(segment.time_index)
    segments = [found[at] for at in range(len(names))]
    return LogStructure(directory.path, files.start_offset(), files.end_offset(), segments)


def _segment(
    files: PartitionFiles, directory: PartitionDirectory, at: int, room: int, *, with_batches: bool
) -> SegmentStructure:
    base = files.base_offsets[at]
    size = os.stat(directory.file(file_name(base, LOG))).st_size
    active = at == len(files.base_offsets) - 1
    batches = _batches(files, base) if with_batches else []
    entries = sum(
        os.stat(directory.file(name)).st_size // entry.size
        for name, entry in (
            (file_name(base, OFFSET_INDEX), OffsetIndex.entry),
            (file_name(base, TIME_INDEX), TimeIndex.entry),
        )
        if not active and os.path.exists(directory.file(name))
    )
    if entries > room:
        return SegmentStructure(base, size, active, is_whole=False, batches=batches)
    index = files.index(base, OFFSET_INDEX, OffsetIndex.entry)
    times = files.index(base, TIME_INDEX, TimeIndex.entry)
    return SegmentStructure(
        base,
        size,
        active,
        index=[IndexEntry(base + offset, position) for offset, position in index],
        time_index=[TimeEntry(timestamp, base + offset) for timestamp, offset in times],
        batches=batches,
    )


def _batches(files: PartitionFiles, base_offset: Offset) -> list[BatchPlace]:
    """Return the first batches of a segment, up to damage if there is any."""
    found: list[BatchPlace] = []
    try:
        for position, entry in files.entries(base_offset, 0):
            first = entry.base_offset if isinstance(entry, Batch) else entry.offset
            found.append(
                BatchPlace(position, entry.size, first, last_offset(entry), max_timestamp(entry))
            )
            if len(found) == BATCHES:
                break
    except CorruptLogError:
        pass  # `millstream log verify` says what is wrong; a drawing ends there
    return found
