"""Reads a range of offsets from segment files, while a broker rolls, deletes and compacts them.

::

    position ──► the segment that holds it ──► whole batches up to the range's end
        ▲                                               │
        └───────── its end: list again, go on ◄─────────┘

An open file stays readable after it is deleted, so a segment can be lost only before it is opened.
Then exactly the offsets up to the first existing segment are missing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from millstream.client.fetch import Fetched
from millstream.model.offsets import Offset
from millstream.protocol.messages.fetch import AbortedTransaction
from millstream.spark.log_files.chunks import Chunk, ChunkReader
from millstream.spark.log_files.segments import (
    IndexEntries,
    SegmentFile,
    floor,
    floor_position,
    list_segments,
)
from millstream.spark.ranges import OffsetRange
from millstream.storage.directory import TRANSACTION_INDEX
from millstream.storage.transaction_index import AbortedEntry, TransactionIndex

CHUNK_BYTES: Final = 1 << 20
_PAUSE_S: Final = 0.05
_OPENINGS: Final = 100


class LostOffsetsError(Exception):
    """The offsets from ``start`` up to ``next_offset`` are not in any file any more."""

    def __init__(self, start: Offset, next_offset: Offset) -> None:
        super().__init__(f"[{start}, {next_offset})")
        self.start = start
        self.next_offset = next_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRules:
    """How a range is read; ``patience_ms`` is how long to wait for its end to be written to the
    file.
    """

    read_committed: bool
    patience_ms: int


@dataclass(slots=True)
class _Opened:
    """A segment's file and the transactions that were aborted from it on."""

    segment: SegmentFile
    descriptor: int
    aborted: Sequence[AbortedEntry]


class FileReader:
    """Reads one range of one partition's directory. Several may read concurrently."""

    def __init__(self, directory: Path, each: OffsetRange, rules: FileRules) -> None:
        self._directory = directory
        self._range = each
        self._rules = rules
        self.position = each.start
        """The next offset; a caller that allows data loss may advance it after LostOffsetsError."""

    def read(self) -> Iterator[Fetched]:
        """Yield whole batches; the bytes of one are overwritten by the next.

        Raises LostOffsetsError, TimeoutError, CorruptLogError.
        """
        while self.position < self._range.end:
            opened = self._open()
            try:
                yield from self._read_segment(opened)
            finally:
                os.close(opened.descriptor)

    def _read_segment(self, opened: _Opened) -> Iterator[Fetched]:
        entry = IndexEntries(self._directory, opened.segment).floor(self.position)
        start = floor_position(opened.descriptor, entry)
        reader = ChunkReader(opened.descriptor, start, CHUNK_BYTES)
        progress = time.monotonic()
        last_look = False
        while True:
            for chunk in reader.read(self._range.end):
                if chunk.next_offset <= self.position:
                    continue
                progress = time.monotonic()
                fetched = self._fetched(chunk, opened.aborted)
                self.position = chunk.next_offset
                yield fetched
            if self.position >= self._range.end:
                return
            higher = self._higher(opened.segment)
            if not self._is_current(opened):
                return  # deleted, or compacted together with later segments
            if higher is not None and last_look:
                # Compaction at the end of a segment leaves a gap of offsets.
                self.position = max(self.position, higher)
                return
            # A segment that has a successor may have grown between the last read and the roll.
            last_look = higher is not None
            if not last_look:
                self._wait(progress)

    def _wait(self, progress: float) -> None:
        if time.monotonic() - progress > self._rules.patience_ms / 1000:
            if self._rules.patience_ms:
                raise TimeoutError(
                    f"offset {self.position} of {self._range.topic_partition} did not come into "
                    f"{self._directory} for {self._rules.patience_ms} ms "
                    "(option kafkaConsumer.pollTimeoutMs)"
                )
            raise LostOffsetsError(self.position, self._range.end)
        time.sleep(_PAUSE_S)

    def _higher(self, segment: SegmentFile) -> Offset | None:
        """Return where the next segment begins; None when this is the last one."""
        bases = (each.base_offset for each in self._list())
        return next((base for base in bases if base > segment.base_offset), None)

    def _is_current(self, opened: _Opened) -> bool:
        """Tell whether the open file still has its name, after a listing."""
        try:
            status = os.stat(opened.segment.path(self._directory))
        except FileNotFoundError:
            return False
        return status.st_ino == os.fstat(opened.descriptor).st_ino

    def _list(self) -> list[SegmentFile]:
        try:
            return list_segments(self._directory)
        except FileNotFoundError:
            raise LostOffsetsError(self.position, self._range.end) from None

    def _open(self) -> _Opened:
        """Open the segment that holds the position."""
        for _ in range(_OPENINGS):
            segments = self._list()
            index = floor(segments, self.position)
            if index < 0:
                first = segments[0].base_offset if segments else self._range.end
                raise LostOffsetsError(self.position, min(first, self._range.end))
            opened = self._try(segments[index:])
            if opened is not None:
                return opened
            time.sleep(_PAUSE_S)
        raise LostOffsetsError(self.position, self._range.end)

    def _try(self, segments: Sequence[SegmentFile]) -> _Opened | None:
        """Open the first segment; None if the file was replaced before everything was read.

        The aborted transactions have to be those of the same file, because compaction removes both.
        """
        path = segments[0].path(self._directory)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            aborted = self._aborted(segments) if self._rules.read_committed else ()
        except BaseException:
            os.close(descriptor)
            raise
        opened = _Opened(segments[0], descriptor, aborted)
        if self._is_current(opened):
            return opened
        os.close(descriptor)
        return None

    def _aborted(self, segments: Sequence[SegmentFile]) -> list[AbortedEntry]:
        """Return the aborted transactions with a marker in these segments."""
        found: list[AbortedEntry] = []
        for segment in segments:
            try:
                data = segment.path(self._directory, TRANSACTION_INDEX).read_bytes()
            except FileNotFoundError:
                continue
            whole = len(data) - len(data) % TransactionIndex.entry.size
            entries = TransactionIndex.entry.iter_unpack(data[:whole])
            found += (AbortedEntry(*fields) for fields in entries)
        return found

    def _fetched(self, chunk: Chunk, aborted: Sequence[AbortedEntry]) -> Fetched:
        end = self._range.end
        return Fetched(
            topic_partition=self._range.topic_partition,
            data=chunk.data,
            fetch_offset=self.position,
            next_offset=chunk.next_offset,
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=0,
            aborted_transactions=[
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in aborted
                if each.last_offset >= chunk.base_offset and each.first_offset < chunk.next_offset
            ],
        )
