"""Turns segments in message formats 0 and 1 into format 2, in place.

A broker of Millstream, like Apache Kafka from 4.0 on, writes magic 2 alone, so a log that an older
Kafka wrote is converted once, with no broker running. Of each segment that needs it, in order::

    1  write  <base>.log.cleaned .index.cleaned .timeindex.cleaned, flushed, and read back
    2  remove <base>.index .timeindex       they would lead to wrong places in the new log
    3  rename <base>.log.cleaned  to <base>.log
    4  rename the two indexes

The directory is flushed after each step. The state on disk is consistent after every step: before
step 3 the old log, after it the new one, at worst without indexes, which every broker rebuilds.
Running it again continues where it stopped.

Kept are offsets with their gaps, timestamps and their type, keys, values, codecs, the time at which
the file was last written (retention of records without timestamps goes by it), and with the base
offsets every checkpoint and snapshot. Batches of magic 2 are copied as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptLogError, MillstreamError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, Offset
from millstream.records.batch import Batch, iter_batches
from millstream.records.legacy import LegacyMessage
from millstream.records.legacy_records import converted_batches
from millstream.records.log_entries import LogEntry, iter_log_entries
from millstream.storage.directory import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SWAP,
    TIME_INDEX,
    PartitionDirectory,
    SegmentLocation,
    parse_file_name,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import DirectoryEntry
from millstream.storage.segment import Segment
from millstream.storage.time_index import TimeIndex

_INDEXES: Final = (OFFSET_INDEX, TIME_INDEX)
_INDEX_INTERVAL_BYTES: Final = 4096
_WRITTEN: Final = (LOG, OFFSET_INDEX, TIME_INDEX)


class MigrationError(MillstreamError):
    """A log that cannot be converted; the text says what to do. The log is unchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigratedSegment:
    """What became of one segment. ``torn_bytes`` at its end were no whole message."""

    path: str
    messages: int
    records: int
    old_bytes: int
    new_bytes: int
    torn_bytes: int = 0


@dataclass(slots=True)
class _Found:
    """What a segment holds."""

    legacy_messages: int = 0
    entries_end: int = 0
    data_end: int = 0


class PartitionMigration:
    """Converts one partition's directory. ``on_bytes`` is called with the number of bytes read."""

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        on_bytes: Callable[[int], None] = lambda count: None,
    ) -> None:
        self._environment = environment
        self._file_system = environment.file_system
        self._directory = directory
        self._on_bytes = on_bytes

    def run(self, *, dry_run: bool = False) -> Iterator[MigratedSegment]:
        """Yield each segment that was converted; with ``dry_run`` each that would be, its new size
        0. Raises MigrationError; OSError.
        """
        entries = [e for e in self._file_system.scan(self._directory.path) if not e.is_directory]
        if any(entry.name.endswith(SWAP) for entry in entries):
            raise MigrationError(
                f"{self._directory.path} holds .swap files, the output of an interrupted "
                "compaction: start and stop the Kafka that wrote it once, then convert"
            )
        if not dry_run:
            self._remove_leftovers(entries)
        logs = sorted(
            (parsed[0], entry)
            for entry in entries
            if (parsed := parse_file_name(entry.name)) and parsed[1] == LOG
        )
        names = {entry.name for entry in entries}
        for base_offset, entry in logs:
            is_last = base_offset == logs[-1][0]
            found = self._look_through(entry, is_last=is_last)
            if found.legacy_messages:
                yield self._convert(base_offset, entry, found, dry_run=dry_run)
            elif not dry_run:
                self._complete_indexes(base_offset, entry, names)

    def _remove_leftovers(self, entries: list[DirectoryEntry]) -> None:
        for entry in entries:
            if entry.name.endswith(CLEANED):
                self._file_system.remove(self._directory.file(entry.name))

    def _look_through(self, entry: DirectoryEntry, *, is_last: bool) -> _Found:
        """Count the messages to convert, and find where whole ones end."""
        path = self._directory.file(entry.name)
        data = memoryview(self._file_system.map(path))
        found = _Found(data_end=len(data))
        try:
            for position, each in iter_log_entries(data):
                found.legacy_messages += isinstance(each, LegacyMessage)
                found.entries_end = position + each.size
        except CorruptLogError as error:
            if not (is_last and not any(data[found.entries_end :])):
                raise self._damaged(path, found.entries_end, error) from None
        if found.entries_end < len(data) and not is_last:
            raise self._damaged(path, found.entries_end, "no whole message")
        return found

    def _damaged(self, path: str, position: int, reason: object) -> MigrationError:
        return MigrationError(
            f"{path} is damaged at position {position} and is left as it is ({reason}): "
            "let the Kafka that wrote it recover the log, or cut the file there"
        )

    def _convert(
        self, base_offset: Offset, entry: DirectoryEntry, found: _Found, *, dry_run: bool
    ) -> MigratedSegment:
        path = self._directory.file(entry.name)
        data = memoryview(self._file_system.map(path))[: found.entries_end]
        if dry_run:
            return self._report(path, found, records=0, new_bytes=0)
        location = SegmentLocation(self._directory, base_offset, CLEANED)
        segment = self._segment(location, entry, size=0)
        try:
            records = self._write(segment, path, data)
            self._check(segment, records)
        except BaseException:
            self._abandon(segment)
            raise
        new_bytes = segment.size
        segment.close()
        self._put_in_place(location, entry.modified_ms)
        return self._report(path, found, records=records, new_bytes=new_bytes)

    def _report(self, path: str, found: _Found, *, records: int, new_bytes: int) -> MigratedSegment:
        return MigratedSegment(
            path=path,
            messages=found.legacy_messages,
            records=records,
            old_bytes=found.data_end,
            new_bytes=new_bytes,
            torn_bytes=found.data_end - found.entries_end,
        )

    def _segment(self, location: SegmentLocation, entry: DirectoryEntry, *, size: int) -> Segment:
        """Return a segment whose indexes preallocate only what this segment may need, not ten
        megabytes.
        """
        entries = 2 * entry.size // _INDEX_INTERVAL_BYTES + 16
        config = TopicConfig(
            {
                "segment.index.bytes": str(entries * TimeIndex.entry.size),
                "index.interval.bytes": str(_INDEX_INTERVAL_BYTES),
            }
        )
        return Segment(self._environment, location, config, size=size, created_ms=entry.modified_ms)

    def _write(self, segment: Segment, path: str, data: memoryview) -> int:
        """Write the new files, flushed; return how many records went into them."""
        segment.create()
        records = 0
        next_offset = segment.base_offset
        for batch in self._batches(path, data):
            if not next_offset <= batch.base_offset <= batch.last_offset <= segment.roll_offset:
                raise self._damaged(path, 0, f"offset {batch.base_offset} is out of order")
            next_offset = batch.next_offset
            segment.append(batch.buffer, batch.size, batch.last_offset, batch.max_timestamp)
            if segment.size > MAX_RELATIVE_OFFSET:
                raise MigrationError(f"{path}: what it holds does not fit a segment of 2 GiB")
            records += batch.count
        segment.become_inactive()
        for extension in _WRITTEN:
            self._file_system.open(segment.location.path(extension)).sync()
        return records

    def _batches(self, path: str, data: memoryview) -> Iterator[Batch]:
        """Yield what ``data`` holds as batches. Raises MigrationError where a CRC is wrong."""
        for is_legacy, run in groupby(
            self._sound_entries(path, data), lambda each: isinstance(each, LegacyMessage)
        ):
            if not is_legacy:
                yield from (each for each in run if isinstance(each, Batch))
                continue
            messages = (each for each in run if isinstance(each, LegacyMessage))
            try:
                for converted in converted_batches(messages):
                    yield Batch(memoryview(converted))
            except CorruptLogError as error:
                raise self._damaged(path, 0, error) from None

    def _sound_entries(self, path: str, data: memoryview) -> Iterator[LogEntry]:
        for position, each in iter_log_entries(data):
            if not each.is_valid:
                raise self._damaged(path, position, "its CRC is wrong")
            yield each
            self._on_bytes(each.size)

    def _check(self, segment: Segment, records: int) -> None:
        """Read the new log back: the old one is removed only if everything is there."""
        path = segment.location.path(LOG)
        count, size = 0, 0
        for batch in iter_batches(memoryview(self._file_system.map(path))):
            batch.ensure_valid()
            count += batch.count
            size += batch.size
        if count != records or size != segment.size:
            raise MigrationError(f"{path} was written and does not read back: check the disk")

    def _abandon(self, segment: Segment) -> None:
        segment.close()
        with contextlib.suppress(OSError):
            for extension in _WRITTEN:
                self._file_system.remove(segment.location.path(extension))

    def _put_in_place(self, location: SegmentLocation, modified_ms: int) -> None:
        file_system = self._file_system
        final = SegmentLocation(self._directory, location.base_offset)
        file_system.set_modified(location.path(LOG), modified_ms)
        for extension in _INDEXES:
            file_system.remove(final.path(extension))
        file_system.sync_directory(self._directory.path)
        for extensions in ((LOG,), _INDEXES):
            for extension in extensions:
                file_system.rename(location.path(extension), final.path(extension))
            file_system.sync_directory(self._directory.path)

    def _complete_indexes(
        self, base_offset: Offset, entry: DirectoryEntry, names: set[str]
    ) -> None:
        """Make the indexes that a stop between steps 3 and 4 left out."""
        stem = entry.name.removesuffix(LOG)
        if all(stem + extension in names for extension in _INDEXES):
            return
        location = SegmentLocation(self._directory, base_offset)
        segment = self._segment(location, entry, size=entry.size)
        segment.indexes.rebuild()
        segment.close()
        self._file_system.sync_directory(self._directory.path)
