"""The files of one partition as they lie there, for those who look into them.

They are read without opening a log, so a broker, Apache Kafka's too, may be writing them.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator

from millstream.model.errors import ConfigError, CorruptLogError
from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.records.batch import Batch
from millstream.records.log_entries import LogEntry, iter_log_entries
from millstream.storage.checkpoint import (
    LOG_START_OFFSETS,
    CorruptCheckpointError,
    parse_offsets,
)
from millstream.storage.directory import (
    LOG,
    OFFSET_INDEX,
    TIME_INDEX,
    PartitionDirectory,
    file_name,
    parse_file_name,
)
from millstream.storage.files import LocalFileSystem, read_file
from millstream.storage.offset_index import OffsetIndex
from millstream.storage.time_index import TimeIndex


class PartitionFiles:
    """The files of one partition, read as they are."""

    def __init__(self, directory: PartitionDirectory) -> None:
        self._directory = directory
        self._file_system = LocalFileSystem()
        self.base_offsets = segments_of(directory)
        if not self.base_offsets:
            raise ConfigError(f"{directory.path} holds no segments")

    def log(self, base_offset: Offset) -> memoryview:
        """Return the bytes of a segment's log."""
        return memoryview(self._file_system.map(self._path(base_offset, LOG)))

    def index(
        self, base_offset: Offset, extension: str, entry: struct.Struct
    ) -> list[tuple[int, ...]]:
        """Return the entries of an index up to the zeros; nothing where there is no file."""
        try:
            data = read_file(self._file_system, self._path(base_offset, extension))
        except FileNotFoundError:
            return []
        used = -(-len(data.rstrip(b"\0")) // entry.size) * entry.size
        used = min(used, len(data) - len(data) % entry.size)
        return list(entry.iter_unpack(data[:used]))

    def start_offset(self) -> Offset:
        """Return the log start: of the checkpoint, or the first segment's name."""
        path = f"{self._directory.parent}/{LOG_START_OFFSETS}"
        stored = 0
        try:
            offsets = parse_offsets(read_file(self._file_system, path).decode("utf-8", "replace"))
            stored = offsets.get(self._directory.topic_partition, 0)
        except (FileNotFoundError, CorruptCheckpointError):
            pass
        return max(stored, self.base_offsets[0])

    def end_offset(self) -> Offset:
        """Return the offset after the last whole batch, or the one where damage begins."""
        base_offset = self.base_offsets[-1]
        end = base_offset
        with contextlib.suppress(CorruptLogError):
            for _, entry in self.entries(base_offset, self._last_position(base_offset)):
                end = last_offset(entry) + 1
        return end

    def entries(self, base_offset: Offset, position: int) -> Iterator[tuple[int, LogEntry]]:
        """Yield the entries of a segment's log from a position on."""
        return iter_log_entries(self.log(base_offset), position)

    def largest_timestamp(self, base_offset: Offset) -> int:
        """Return the largest timestamp: the time index has it but for what its last entry lacks."""
        entries = self.index(base_offset, TIME_INDEX, TimeIndex.entry)
        largest = entries[-1][0] if entries else NO_TIMESTAMP
        with contextlib.suppress(CorruptLogError):
            for _, entry in self.entries(base_offset, self._last_position(base_offset)):
                largest = max(largest, max_timestamp(entry))
        return largest

    def _last_position(self, base_offset: Offset) -> int:
        entries = self.index(base_offset, OFFSET_INDEX, OffsetIndex.entry)
        return entries[-1][1] if entries else 0

    def _path(self, base_offset: Offset, extension: str) -> str:
        return self._directory.file(file_name(base_offset, extension))


def last_offset(entry: LogEntry) -> Offset:
    """Return the offset that an entry of a log ends with."""
    return entry.last_offset if isinstance(entry, Batch) else entry.offset


def max_timestamp(entry: LogEntry) -> int:
    """Return the largest timestamp of an entry: a wrapper's own is that."""
    return entry.max_timestamp if isinstance(entry, Batch) else entry.timestamp


def segments_of(directory: PartitionDirectory) -> list[int]:
    """Return the base offsets of the segments that are neither on their way in nor out."""
    names = map(parse_file_name, os.listdir(directory.path))
    return sorted(parsed[0] for parsed in names if parsed and parsed[1] == LOG)
