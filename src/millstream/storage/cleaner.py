"""Cleans one log: keeps only the last record of every key.

Two passes. The first reads the dirty part and notes the last offset of each key in a map; where the
map is full, the rest is left to the next cleaning. The second copies the log's closed segments up
to there, group by group, without the records that the map knows a later one of. A group becomes one
segment, in these steps::

    <base>.log.cleaned  ...   written and flushed            a crash before here leaves no trace
    .cleaned -> .swap         the log first, indexes after   a crash in here neither
    old segments -> .deleted                                 a crash from here on: the start
    .swap -> <base>.log                                      carries it to the end

Everything here runs on a thread of its own, on files that nobody writes to, which it opens by
itself; what touches the live log (``log_compaction``) is done by the log's owner in between. Kafka:
``Cleaner``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptLogError, MillstreamError, StorageError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.batch import HEADER_SIZE, Batch, header_at, iter_batches
from millstream.records.compaction import decompressed_records, whole_batches_end
from millstream.storage.batch_filter import BatchFilter, FilterRules
from millstream.storage.cleanable import CleaningAbortedError, SourceSegment, group_segments
from millstream.storage.cleaned_transactions import CleanedTransactions
from millstream.storage.directory import (
    CLEANED,
    LOG,
    OFFSET_INDEX,
    SEGMENT_EXTENSIONS,
    TIME_INDEX,
    PartitionDirectory,
    SegmentLocation,
    file_name,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.file_records import FileRecords
from millstream.storage.offset_map import OffsetMap
from millstream.storage.open_files import OpenFiles
from millstream.storage.segment import Segment
from millstream.storage.transaction_index import AbortedEntry, TransactionIndex

_OPEN_FILES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The input of a cleaning; see ``log_compaction.plan_cleaning``."""

    topic_partition: TopicPartition
    log_directory: str
    directory_name: str
    config: TopicConfig
    segments: Sequence[SourceSegment]
    """The closed segments up to the first uncleanable one; sizes of indexes are not filled in."""
    first_dirty_offset: Offset
    later_aborted: Sequence[AbortedEntry]
    """Aborted transactions whose marker lies behind these segments."""
    unsynced: Sequence[Offset]
    """Segments (including the active one) whose committed records may not be flushed yet."""
    rules: FilterRules


@dataclass(slots=True)
class CleaningStats:
    """What a cleaning did so far."""

    bytes_read: int = 0
    bytes_written: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class CleanedSegment:
    """Finished output, still under its ``.cleaned`` names, and what it takes the place of."""

    base_offset: Offset
    size: int
    modified_ms: int
    sources: Sequence[Offset]


class Cleaning:
    """One cleaning of one log. ``on_bytes`` is called with the number of bytes about to be read or
    written; it may block, and may raise CleaningAbortedError.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        plan: CleaningPlan,
        offset_map: OffsetMap,
        *,
        buffer_bytes: int,
        on_bytes: Callable[[int], None],
    ) -> None:
        self._files = environment.file_system
        self._environment = LogEnvironment(
            file_system=environment.file_system, open_files=OpenFiles(_OPEN_FILES)
        )
        self._plan = plan
        self._directory = PartitionDirectory(
            plan.log_directory, plan.directory_name, plan.topic_partition
        )
        self._map = offset_map
        self._buffer_bytes = max(buffer_bytes, HEADER_SIZE)
        self._on_bytes = on_bytes
        self._transactions: CleanedTransactions | None = None
        rules = plan.rules
        # In order: nothing of a producer lies at or beyond the end but what is not cleaned.
        ends = {end.last_offset for end in rules.producers.values()}
        self._stops = sorted(
            {end for end in ends if end < rules.end_offset} | {rules.end_offset - 1}
        )
        self.stats = CleaningStats()
        self.end_offset = plan.first_dirty_offset
        """How far the log will be clean, known once the map is built."""

    def build_map(self) -> list[list[SourceSegment]]:
        """Read the dirty part; return the groups of segments to clean.

        Raises CleaningAbortedError; CorruptLogError; StorageError.
        """
        with self._failures():
            self._read_keys()
            self.end_offset = self._map.latest_offset + 1
            self.stats.keys = self._map.count
            if self.end_offset <= self._plan.first_dirty_offset:
                raise CorruptLogError(
                    f"{self._plan.topic_partition}: the batch at offset "
                    f"{self._plan.first_dirty_offset} has more keys than "
                    "log.cleaner.dedupe.buffer.size has room for"
                )
            self._sync_sources()
            self._transactions = CleanedTransactions(self._aborted(from_offset=0))
            return group_segments(
                self._measured(),
                max_bytes=self._plan.config.roll_bytes,
                max_index_bytes=self._plan.config.segment_index_bytes,
            )

    def clean_group(self, group: Sequence[SourceSegment]) -> CleanedSegment:
        """Write the retained records of a group to a new segment and flush it. Called for the
        groups in order.

        Raises as :meth:`build_map`; leftover files are removed at the next start.
        """
        with self._failures():
            made = Segment(
                self._environment,
                SegmentLocation(self._directory, group[0].base_offset, CLEANED),
                self._plan.config,
                size=0,
                created_ms=self._plan.rules.now_ms,
            )
            try:
                made.create()
                for source in group:
                    self._copy(source, made)
                self._finish(made, group[-1].modified_ms)
            except (OSError, MillstreamError):
                with contextlib.suppress(OSError):
                    made.remove()
                raise
            sources = [source.base_offset for source in group]
            return CleanedSegment(made.base_offset, made.size, group[-1].modified_ms, sources)

    def discard(self, cleaned: CleanedSegment) -> None:
        """Remove a group's output, which is not wanted any more, from where it was written: a topic
        that was made anew under the name may lie there. Raises StorageError.
        """
        location = SegmentLocation(self._directory, cleaned.base_offset, CLEANED)
        with self._failures():
            for extension in SEGMENT_EXTENSIONS:
                self._files.remove(location.path(extension))

    def sync_directory(self) -> None:
        """Flush the directory, so that the new names are durable. Raises StorageError."""
        with self._failures():
            self._files.sync_directory(self._directory.path)

    # The first pass

    def _read_keys(self) -> None:
        start_offset = self._plan.first_dirty_offset
        transactions = CleanedTransactions(self._aborted(from_offset=start_offset))
        for source in self._plan.segments:
            if source.end_offset <= start_offset:
                continue
            for data in self._chunks(source):
                if not self._put_chunk(data, transactions):
                    return
            # Compaction may have left a gap before the next segment.
            self._map.latest_offset = max(self._map.latest_offset, source.end_offset - 1)

    def _put_chunk(self, data: memoryview, transactions: CleanedTransactions) -> bool:
        """Take in the batches of a chunk; False where the map is full."""
        offset_map, start_offset = self._map, self._plan.first_dirty_offset
        position = 0
        while True:
            position, fits = offset_map.put_batches(data, position, start_offset)
            if not fits:
                return False
            if position >= len(data):
                return True
            batch = header_at(data, position)
            position += batch.size
            if not self._put_batch(batch, transactions):
                return False

    def _put_batch(self, batch: Batch, transactions: CleanedTransactions) -> bool:
        start_offset = self._plan.first_dirty_offset
        if batch.is_control:
            batch.ensure_valid()
            transactions.may_discard_marker(batch)
        elif not transactions.is_aborted(batch) and batch.last_offset >= start_offset:
            batch.ensure_valid()
            if not self._map.put_records(
                decompressed_records(batch), batch.count, batch.base_offset, start_offset
            ):
                return False
        if batch.last_offset >= start_offset:
            self._map.latest_offset = max(self._map.latest_offset, batch.last_offset)
        return True

    def _sync_sources(self) -> None:
        """Flush what cleaning relies on. If a power loss took a record, or the marker that commits
        it, after cleaning had removed the older record of its key, both would be lost.
        """
        for base_offset in self._plan.unsynced:
            path = SegmentLocation(self._directory, base_offset).path(LOG)
            self._files.open(path).sync()
        if self._plan.unsynced:
            self._files.sync_directory(self._directory.path)
            self._files.sync_directory(self._directory.parent)

    # The second pass

    def _measured(self) -> list[SourceSegment]:
        """Return the segments to clean, with the sizes of their indexes and their times."""
        sizes = {entry.name: entry for entry in self._files.scan(self._directory.path)}
        measured = []
        for source in self._plan.segments:
            if source.base_offset >= self.end_offset:
                break
            log, index, time_index = (
                sizes.get(file_name(source.base_offset, extension))
                for extension in (LOG, OFFSET_INDEX, TIME_INDEX)
            )
            measured.append(
                SourceSegment(
                    base_offset=source.base_offset,
                    end_offset=source.end_offset,
                    size=source.size,
                    index_bytes=index.size if index else 0,
                    time_index_bytes=time_index.size if time_index else 0,
                    modified_ms=log.modified_ms if log else 0,
                )
            )
        return measured

    def _copy(self, source: SourceSegment, made: Segment) -> None:
        transactions = self._transactions
        assert transactions is not None, "the map is built first"
        transactions.index = made.transaction_index
        batch_filter = BatchFilter(self._plan.rules, self._map, transactions)
        for data in self._chunks(source):
            self.stats.bytes_read += len(data)
            left = self._filter_chunk(data, batch_filter)
            if left:
                self._on_bytes(len(left))
                made.append_run(memoryview(left), list(iter_batches(left)))
                self.stats.bytes_written += len(left)

    def _filter_chunk(self, data: memoryview, batch_filter: BatchFilter) -> bytes:
        parts: list[bytes | memoryview] = []
        position = 0
        while True:
            position, plain = self._map.filter_batches(data, position, self._stops)
            parts.append(plain)
            if position >= len(data):
                return b"".join(parts)
            batch = header_at(data, position)
            position += batch.size
            left = batch_filter.filter(batch)
            if left is not None:
                parts.append(left)

    def _finish(self, made: Segment, modified_ms: int) -> None:
        """Trim, flush, and give it the time of the newest file that it takes the place of, by
        which retention goes where records have no timestamps.
        """
        made.become_inactive()
        for path in made.paths():
            with contextlib.suppress(FileNotFoundError):
                self._files.open(path).sync()
        made.close()
        if modified_ms:
            self._files.set_modified(made.location.path(LOG), modified_ms)

    # Both

    def _chunks(self, source: SourceSegment) -> Iterator[memoryview]:
        """Yield a segment's batches, as many whole ones at a time as the buffer holds."""
        records = FileRecords(
            self._environment, SegmentLocation(self._directory, source.base_offset), source.size
        )
        file = records.file()
        position = 0
        wanted = self._buffer_bytes
        while position < source.size:
            wanted = min(wanted, source.size - position)
            self._on_bytes(wanted)
            data = memoryview(file.read_at(position, wanted))
            end = whole_batches_end(data)
            if end == 0:
                missing = header_at(data).size if len(data) >= HEADER_SIZE else HEADER_SIZE
                if len(data) < wanted or missing > source.size - position:
                    raise CorruptLogError(f"{records.path}: no whole batch at {position}")
                wanted = missing
                continue
            yield data[:end]
            position += end
            wanted = self._buffer_bytes
        records.close()

    def _aborted(self, *, from_offset: Offset) -> list[AbortedEntry]:
        found = list(self._plan.later_aborted)
        for source in self._plan.segments:
            if source.end_offset > from_offset:
                location = SegmentLocation(self._directory, source.base_offset)
                found += TransactionIndex(self._environment, location).entries
        return [entry for entry in found if entry.last_offset >= from_offset]

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise CleaningAbortedError(str(error)) from error
        except OSError as error:
            partition = self._plan.topic_partition
            raise StorageError(
                self._plan.log_directory, f"cleaning of {partition}: {error}"
            ) from error
