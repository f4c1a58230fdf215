"""Checks one partition's directory: every batch, and every other file against the batches.

Nothing is written and no lock is taken. With ``is_live`` a broker is writing here: an incomplete
batch at the end is no damage, files may disappear, and a problem has to be found twice to count,
because an index may be read before and its log after a compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import CorruptLogError, MillstreamError
from millstream.model.offsets import MAX_RELATIVE_OFFSET, Offset
from millstream.records.batch import Batch
from millstream.records.legacy import LegacyMessage
from millstream.records.log_entries import iter_log_entries
from millstream.records.record import iter_records
from millstream.storage.checkpoint import CorruptCheckpointError
from millstream.storage.damaged_files import parse_damaged_name
from millstream.storage.directory import (
    CLEANED,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    PartitionDirectory,
    file_name,
    parse_file_name,
)
from millstream.storage.files import FileSystem, read_file
from millstream.storage.leader_epochs import LeaderEpochs
from millstream.storage.partition_metadata import parse_partition_metadata
from millstream.storage.verify.history import EpochCheck, ProducerCheck
from millstream.storage.verify.indexes import OffsetIndexCheck, TimeIndexCheck
from millstream.storage.verify.problem import Problem

_SERVED: Final = (
    "a broker serves it and consumers fail on it; when the recovery after a crash begins at or "
    "before it, the log ends at offset {offset} and what follows is kept aside"
)
_TORN: Final = "a broker cuts it off at its next start"
_MISSING: Final = "a broker rebuilds it at its next start"
_LEGACY: Final = "a broker leaves the partition alone: stop it and run `millstream log migrate`"
_UNKNOWN_END: Final = 2**63 - 1
_IN_PASSING: Final = (DELETED, CLEANED, SWAP, ".tmp")


@dataclass(slots=True)
class PartitionReport:
    """What was found in one partition."""

    problems: list[Problem] = field(default_factory=list)
    damaged_files: dict[str, int] = field(default_factory=dict)
    """Bytes of the files that recovery kept aside, by path. They are not reported as problems.
    """
    segments: int = 0
    bytes: int = 0
    log_start_offset: Offset = 0
    """Base offset of the first segment."""
    log_end_offset: Offset = 0
    is_legacy: bool = False
    """True when messages of magic 0 or 1 were met, at which the check ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How a directory is checked. ``on_bytes`` is called with the bytes of log that were read."""

    is_live: bool = False
    with_records: bool = False
    """Decompress every batch and read its records too."""
    on_bytes: Callable[[int], None] = lambda count: None


def verify_partition(
    file_system: FileSystem, directory: PartitionDirectory, options: VerifyOptions
) -> PartitionReport:
    """Return everything that is wrong in a partition's directory. Raises OSError."""
    report = _Check(file_system, directory, options).run()
    if options.is_live and report.problems:
        again = _Check(file_system, directory, options).run()
        seen = {(problem.path, problem.position, problem.what) for problem in report.problems}
        again.problems = [p for p in again.problems if (p.path, p.position, p.what) in seen]
        return again
    return report


class _Check:
    def __init__(
        self, file_system: FileSystem, directory: PartitionDirectory, options: VerifyOptions
    ) -> None:
        self._file_system = file_system
        self._directory = directory
        self._options = options
        self._report = PartitionReport()
        self._next_offset: Offset = 0

    def run(self) -> PartitionReport:
        entries = [
            entry
            for entry in self._file_system.scan(self._directory.path)
            if not entry.is_directory and not entry.name.endswith(_IN_PASSING)
        ]
        self._report.damaged_files = {
            self._directory.file(entry.name): entry.size
            for entry in sorted(entries)
            if parse_damaged_name(entry.name) is not None
        }
        names = {entry.name for entry in entries}
        parsed = [found for name in names if (found := parse_file_name(name))]
        bases = sorted(offset for offset, extension in parsed if extension == LOG)
        self._report.segments = len(bases)
        self._report.log_start_offset = self._next_offset = bases[0] if bases else 0
        self._take(self._metadata(names))
        self._epochs = self._read_epochs(names)
        self._producers = ProducerCheck(
            {
                offset: (self._path(offset, extension), self._read(offset, extension) or b"")
                for offset, extension in parsed
                if extension == PRODUCER_SNAPSHOT
            },
            self._next_offset,
        )
        for offset, extension in parsed:
            if extension in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX) and offset not in bases:
                broker = "a broker removes it at its next start"
                path = self._path(offset, extension)
                if not self._options.is_live:
                    self._take([Problem(path, None, "an index without a log", broker)])
        for base_offset in bases:
            self._segment(base_offset, is_active=base_offset == bases[-1])
            if self._report.is_legacy:
                self._report.log_end_offset = _UNKNOWN_END
                return self._report
        self._take(self._producers.finish(self._next_offset))
        self._report.log_end_offset = self._next_offset
        return self._report

    def _take(self, problems: Iterable[Problem]) -> None:
        self._report.problems.extend(problems)

    def _path(self, base_offset: Offset, extension: str) -> str:
        return self._directory.file(file_name(base_offset, extension))

    def _read(self, base_offset: Offset, extension: str) -> bytes | None:
        try:
            return read_file(self._file_system, self._path(base_offset, extension))
        except FileNotFoundError:
            return None

    # One segment

    def _segment(self, base_offset: Offset, *, is_active: bool) -> None:
        checks = self._index_checks(base_offset, is_active=is_active)
        aborted = self._read(base_offset, TRANSACTION_INDEX)
        path = self._path(base_offset, LOG)
        try:
            data = memoryview(self._file_system.map(path))
        except FileNotFoundError:
            if not self._options.is_live:
                raise
            return  # deleted or compacted away since the names were read
        if base_offset < self._next_offset:
            what = f"it begins at {base_offset}, where {self._next_offset} is next"
            self._take([Problem(path, None, what, _SERVED.format(offset=self._next_offset))])
        self._next_offset = max(self._next_offset, base_offset)
        self._report.bytes += len(data)
        is_whole = self._walk(path, data, base_offset, checks, is_active=is_active)
        # After damage it is unknown where the entries should point.
        if is_whole:
            for check in checks:
                self._take(check.finish())
            segment_path = self._path(base_offset, TRANSACTION_INDEX)
            is_live = self._options.is_live and is_active
            self._take(self._producers.segment_ended(segment_path, aborted or b"", is_live=is_live))

    def _index_checks(
        self, base_offset: Offset, *, is_active: bool
    ) -> list[OffsetIndexCheck | TimeIndexCheck]:
        checks: list[OffsetIndexCheck | TimeIndexCheck] = []
        found = {each: self._read(base_offset, each) for each in (OFFSET_INDEX, TIME_INDEX)}
        # An active segment's index files are created with their first entries, or when the log is
        # closed.
        is_new = is_active and all(data is None for data in found.values())
        for extension, data in found.items():
            path = self._path(base_offset, extension)
            if data is None:
                if not (self._options.is_live or is_new):
                    self._take([Problem(path, None, "there is no such file", _MISSING)])
            elif extension == OFFSET_INDEX:
                checks.append(OffsetIndexCheck(path, data, base_offset, may_have_zeros=is_active))
            else:
                checks.append(
                    TimeIndexCheck(
                        path, data, base_offset, is_active=is_active, may_have_zeros=is_active
                    )
                )
        return checks

    def _walk(
        self,
        path: str,
        data: memoryview,
        base_offset: Offset,
        checks: list[OffsetIndexCheck | TimeIndexCheck],
        *,
        is_active: bool,
    ) -> bool:
        """Look at every batch; return False when the rest of a log could not be walked."""
        end = 0
        try:
            for position, entry in iter_log_entries(data):
                if isinstance(entry, LegacyMessage):
                    what = f"a message in format version {entry.magic} at offset {entry.offset}"
                    self._take([Problem(path, position, what, _LEGACY)])
                    self._report.is_legacy = True
                    return False
                self._take(self._batch(path, position, entry, base_offset))
                for check in checks:
                    self._take(check.batch(position, entry))
                end = position + entry.size
                self._options.on_bytes(entry.size)
        except CorruptLogError as error:
            if not (is_active and self._options.is_live and not any(data[end:])):
                self._take([self._no_batch(path, end, data, str(error), is_active=is_active)])
            return not any(data[end:])
        if end < len(data) and not (is_active and self._options.is_live):
            what = f"{len(data) - end} bytes that are no whole batch"
            self._take([self._no_batch(path, end, data, what, is_active=is_active)])
        return True

    def _no_batch(
        self, path: str, end: int, data: memoryview, what: str, *, is_active: bool
    ) -> Problem:
        if is_active and not any(data[end:]):
            return Problem(path, end, f"{len(data) - end} zero bytes after the last batch", _TORN)
        is_torn = is_active and "no whole batch" in what
        broker = _TORN if is_torn else _SERVED.format(offset=self._next_offset)
        return Problem(path, end, what.replace(f" at position {end}", ""), broker)

    def _batch(
        self, path: str, position: int, batch: Batch, base_offset: Offset
    ) -> Iterator[Problem]:
        expected = self._next_offset
        served = _SERVED.format(offset=expected)
        if not batch.is_valid:
            what = f"the batch at offset {batch.base_offset} ({batch.size} bytes) fails its CRC-32C"
            yield Problem(path, position, what, served)
        elif batch.base_offset < expected:
            what = f"the batch begins at offset {batch.base_offset}, where {expected} is next"
            yield Problem(path, position, what, served)
        elif batch.last_offset > base_offset + MAX_RELATIVE_OFFSET:
            what = f"the batch ends at offset {batch.last_offset}, too far from the file's name"
            yield Problem(path, position, what, served)
        else:
            self._next_offset = batch.next_offset
            if self._options.with_records:
                yield from self._records(path, position, batch)
            if self._epochs is not None:
                yield from self._epochs.batch(batch)
            yield from self._producers.batch(batch)
            return
        self._next_offset = max(expected, min(batch.next_offset, base_offset + MAX_RELATIVE_OFFSET))

    def _records(self, path: str, position: int, batch: Batch) -> Iterator[Problem]:
        last = batch.base_offset - 1
        broker = "a broker does not look inside and serves it; consumers fail on it"
        try:
            for record in iter_records(batch):
                if not last < record.offset <= batch.last_offset:
                    what = f"the record at offset {record.offset} follows {last}"
                    yield Problem(path, position, what, broker)
                last = record.offset
        except MillstreamError as error:
            yield Problem(path, position, str(error), broker)

    # The other files

    def _read_epochs(self, names: set[str]) -> EpochCheck | None:
        if LEADER_EPOCH_CHECKPOINT not in names:
            return None
        path = self._directory.file(LEADER_EPOCH_CHECKPOINT)
        text = read_file(self._file_system, path).decode("utf-8", "replace")
        try:
            return EpochCheck(path, LeaderEpochs.parse(text))
        except CorruptCheckpointError as error:
            broker = "a broker rebuilds it from the log"
            self._take([Problem(path, None, str(error), broker)])
            return None

    def _metadata(self, names: set[str]) -> Iterator[Problem]:
        if PARTITION_METADATA not in names:
            return
        path = self._directory.file(PARTITION_METADATA)
        text = read_file(self._file_system, path).decode("utf-8", "replace")
        if parse_partition_metadata(text) is None:
            broker = "a broker takes the topic's id from its own metadata"
            yield Problem(path, None, "it holds no topic id", broker)
