"""Opens a partition's directory: finishes what was interrupted, recovers after a crash.

After a clean shutdown nothing is read but names, sizes, the tail behind the last index entry, the
newest producer snapshot and the small text files. Without the marker every segment from the
recovery point on is read: CRCs and offsets are checked, indexes, epochs and producer state are
rebuilt, and at the first bad batch, or where a segment is missing its end, the log ends. What
follows is cut off, later segments too, and kept aside where there are valid records in it
(``damaged_files``).

Files of interrupted deletions and replacements (Kafka: ``LogLoader``)::

    .deleted .cleaned .tmp   removed
    .swap                    output of compaction, complete unless a .cleaned file is left at or
                             below its offset: takes the place of the segments that it covers
    indexes without a log    removed
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from millstream.config.topic import TopicConfig
from millstream.model.errors import CorruptIndexError, CorruptLogError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.topic import TopicId
from millstream.records.legacy import UnsupportedFormatError
from millstream.storage.checkpoint import CorruptCheckpointError
from millstream.storage.damaged_files import DamagedFiles
from millstream.storage.directory import (
    CLEANED,
    DELETED,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PRODUCER_SNAPSHOT,
    SEGMENT_EXTENSIONS,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    PartitionDirectory,
    SegmentLocation,
    file_name,
    parse_file_name,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import DirectoryEntry, read_file
from millstream.storage.leader_epochs import LeaderEpochs, write_leader_epochs
from millstream.storage.log_offsets import LogOffsets
from millstream.storage.producer_recovery import replay_log, restore_snapshot
from millstream.storage.producer_snapshot import ProducerSnapshots
from millstream.storage.producer_state import ProducerStateManager
from millstream.storage.recovery_report import RecoveryCounter, RecoveryReport
from millstream.storage.segment import Segment
from millstream.storage.segment_recovery import SegmentRecovery
from millstream.storage.segments import Segments
from millstream.storage.torn_tail import valid_batch_follows
from millstream.storage.trust import distrust

_log = logging.getLogger(__name__)

_TEMPORARY = (DELETED, CLEANED, ".tmp")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What the checkpoints of the log directory say about a log before it is opened."""

    now_ms: int
    had_clean_shutdown: bool = True
    recovery_point: Offset = 0
    log_start_offset: Offset = 0
    high_watermark: Offset = 0
    cleaned_up_to: Offset = 0
    """The first dirty offset, even if the topic is not compacted any more."""
    topic_id: TopicId | None = None
    """Id in ``partition.metadata``."""
    counter: RecoveryCounter = field(default_factory=RecoveryCounter)
    """Receives the progress of a recovery."""


@dataclass(slots=True)
class LogState:
    """A log as it was found: what ``Log`` is made of."""

    segments: Segments
    offsets: LogOffsets
    recovery_point: Offset
    producers: ProducerStateManager
    snapshots: ProducerSnapshots
    epochs: LeaderEpochs
    topic_id: TopicId | None
    report: RecoveryReport


@dataclass(slots=True)
class _Files:
    """The names in a partition's directory, sorted by what they are."""

    kept: DamagedFiles

    segments: dict[Offset, dict[str, DirectoryEntry]] = field(default_factory=dict)
    snapshots: list[Offset] = field(default_factory=list)
    others: set[str] = field(default_factory=set)


class Loader:
    """Opens one partition's directory."""

    def __init__(
        self,
        environment: LogEnvironment,
        directory: PartitionDirectory,
        config: TopicConfig,
        options: LoadOptions,
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._config = config
        self._options = options
        self._segments = Segments()
        self._producers = ProducerStateManager()
        self._epochs = LeaderEpochs()
        self._epochs_on_disk: list[tuple[LeaderEpoch, Offset]] = []
        self._dropped_epochs: dict[LeaderEpoch, Offset] = {}
        self._report = RecoveryReport()
        self._has_transactions_in_active = False
        self._known_start = options.log_start_offset
        """Nothing before it is kept, even if the first segment contains older batches."""

    def load(self) -> LogState:
        """Return the log's state. Raises OSError, and CorruptLogError where a log that was closed
        cleanly is damaged beyond its tail.
        """
        files = self._finish_interrupted()
        self._kept = files.kept
        self._open_segments(files)
        self._read_epochs(files)
        self._refuse_old_beginning()
        self._snapshots = ProducerSnapshots(self._environment, self._directory, files.snapshots)
        log_end_offset = self._find_end() if self._options.had_clean_shutdown else self._recover()
        log_start_offset, log_end_offset = self._settle_start(log_end_offset)
        self._settle_epochs(log_start_offset, log_end_offset)
        self._settle_producers(log_start_offset, log_end_offset)
        return LogState(
            self._segments,
            LogOffsets(
                self._producers, log_start_offset=log_start_offset, log_end_offset=log_end_offset
            ),
            self._recovery_point(log_end_offset),
            self._producers,
            self._snapshots,
            self._epochs,
            self._options.topic_id,
            self._report,
        )

    # Files

    def _finish_interrupted(self) -> _Files:
        file_system = self._environment.file_system
        entries = [e for e in file_system.scan(self._directory.path) if not e.is_directory]
        if any(entry.name.endswith(SWAP) for entry in entries):
            self._finish_swap(entries)
            entries = [e for e in file_system.scan(self._directory.path) if not e.is_directory]
        files = _Files(DamagedFiles(file_system, self._directory, entries))
        for entry in entries:
            if entry.name.endswith(_TEMPORARY):
                file_system.remove(self._directory.file(entry.name))
                continue
            parsed = parse_file_name(entry.name)
            if parsed is None:
                files.others.add(entry.name)
            elif parsed[1] == PRODUCER_SNAPSHOT:
                files.snapshots.append(parsed[0])
            else:
                files.segments.setdefault(parsed[0], {})[parsed[1]] = entry
        return files

    def _finish_swap(self, entries: list[DirectoryEntry]) -> None:
        file_system, path_of = self._environment.file_system, self._directory.file
        cleaned = [
            offset for e in entries if (offset := _offset_before(e.name, CLEANED)) is not None
        ]
        unfinished_from = min(cleaned, default=None)
        covered_from, covered_to = 2**63, 0
        for entry in entries:
            offset = _offset_before(entry.name, SWAP)
            if offset is None:
                continue
            if unfinished_from is not None and offset >= unfinished_from:
                file_system.remove(path_of(entry.name))
            elif entry.name.endswith(LOG + SWAP):
                segment = self._segment(offset, entry, SWAP)
                covered_from = min(covered_from, offset)
                covered_to = max(covered_to, segment.next_offset())
                segment.close()
        for entry in entries:
            parsed = parse_file_name(entry.name)
            if parsed and covered_from <= parsed[0] < covered_to:
                file_system.remove(path_of(entry.name))
        for entry in entries:
            if entry.name.endswith(SWAP) and file_system.exists(path_of(entry.name)):
                final_name = entry.name.removesuffix(SWAP)
                file_system.rename(path_of(entry.name), path_of(final_name))

    def _segment(self, base_offset: Offset, entry: DirectoryEntry, suffix: str = "") -> Segment:
        return Segment(
            self._environment,
            SegmentLocation(self._directory, base_offset, suffix),
            self._config,
            size=entry.size,
            created_ms=entry.modified_ms,
        )

    def _open_segments(self, files: _Files) -> None:
        for base_offset, found in sorted(files.segments.items()):
            if LOG not in found:
                for extension in found:
                    name = file_name(base_offset, extension)
                    self._environment.file_system.remove(self._directory.file(name))
                continue
            segment = self._segment(base_offset, found[LOG])
            self._segments.add(segment)
            self._has_transactions_in_active = TRANSACTION_INDEX in found
            missing = OFFSET_INDEX not in found or TIME_INDEX not in found
            if missing and self._options.had_clean_shutdown:
                _log.warning("%s: an index is missing and is rebuilt", segment.records.path)
                segment.indexes.rebuild()

    def _read_epochs(self, files: _Files) -> None:
        if LEADER_EPOCH_CHECKPOINT in files.others:
            path = self._directory.file(LEADER_EPOCH_CHECKPOINT)
            text = read_file(self._environment.file_system, path).decode("utf-8", "replace")
            try:
                self._epochs = LeaderEpochs.parse(text)
            except CorruptCheckpointError as error:
                _log.warning("%s is rebuilt from the log: %s", path, error)
            else:
                self._epochs_on_disk = self._epochs.entries()
                if self._epochs_on_disk or self._options.had_clean_shutdown:
                    self._known_start = max(self._known_start, self._start_of_epochs())
                    return
                # The file of a log that was truncated fully. A power loss may have brought back
                # segments from before, with epochs.
        elif self._options.had_clean_shutdown:
            return
        self._refuse_old_beginning()
        # Segments that recovery reads anyway add their epochs then.
        recovered_from = self._segments_to_recover()
        for segment in self._segments:
            if segment not in recovered_from:
                for batch in segment.records.headers():
                    self._add_epoch(batch.leader_epoch, batch.base_offset)

    def _refuse_old_beginning(self) -> None:
        """Raise where the log begins in an old format: a log that was upgraded since has no epochs
        there, and its first fetch would fail.
        """
        entries = self._epochs.entries()
        if len(self._segments):
            first = self._segments.first
            if not entries or entries[0][1] > first.base_offset:
                self._refuse_old_format([first])

    def _start_of_epochs(self) -> Offset:
        """Return where the first epoch begins if batches of epochs before it are there, else 0.

        They are forgotten when the log start moves; its checkpoint follows later. If the log began
        there again, divergence from followers could not be detected in that range.

        Where nothing lies before the first epoch, the log start need not be there: a copy of a
        compacted log, or epochs rebuilt from one, begin with the first batch that is left.
        """
        entries = self._epochs.entries()
        if self._options.had_clean_shutdown or not entries or not len(self._segments):
            return 0
        headers = (each for segment in self._segments for each in segment.records.headers())
        try:
            first = next(headers, None)  # compaction may leave nothing of the first segments
        except CorruptLogError:
            return 0
        begins = entries[0][1]
        # Batches without an epoch were written before brokers had leader epochs.
        forgotten = first is not None and first.leader_epoch >= 0 and first.base_offset < begins
        return begins if forgotten else 0

    # Recovery

    def _find_end(self) -> Offset:
        if not len(self._segments):
            return self._known_start
        active = self._segments.active
        self._refuse_old_format([active])
        try:
            end = active.next_offset()
            if self._has_transactions_in_active:
                # Appends continue this one, so it has to be valid now. Others are rebuilt on first
                # use.
                active.transaction_index.check()
        except (CorruptLogError, CorruptIndexError) as error:
            _log.warning("%s was closed cleanly and is damaged: %s", active.records.path, error)
            return self._recover_from([active])
        active.close()
        return end

    def _segments_to_recover(self) -> list[Segment]:
        if self._options.had_clean_shutdown or not len(self._segments):
            return []
        return self._segments.starting_with(self._options.recovery_point)

    def _recover(self) -> Offset:
        segments = self._segments_to_recover()
        self._refuse_old_format(segments)
        return self._recover_from(segments) if segments else self._known_start

    def _refuse_old_format(self, segments: Iterable[Segment]) -> None:
        """Raise before anything is written: a format that cannot be read is left unchanged."""
        for segment in segments:
            try:
                segment.records.refuse_old_format()
            except UnsupportedFormatError:
                segment.close()
                raise

    def _recover_from(self, segments: list[Segment]) -> Offset:
        first_offset = segments[0].base_offset
        self._drop_epochs_from(first_offset)
        self._snapshots.mark_unverified(above=first_offset)
        start = restore_snapshot(
            self._producers,
            self._snapshots,
            self._environment,
            log_start_offset=self._log_start_offset(),
            up_to=first_offset,
            now_ms=self._options.now_ms,
        )
        replay_log(self._producers, self._segments, start, first_offset)
        next_offset = first_offset
        for number, segment in enumerate(segments):
            if number:
                self._snapshots.write(segment.base_offset, self._producers.producers.values())
            next_offset, cut = self._recover_segment(segment)
            rest = segments[number + 1 :]
            if cut or self._follows_a_hole(rest, next_offset):
                self._drop(rest)
                break
        self._snapshots.remove_unverified()
        return next_offset

    def _follows_a_hole(self, rest: list[Segment], next_offset: Offset) -> bool:
        """Tell whether the next segment does not begin where this one ends.

        The name of a new segment can reach the disk before the end of the one before it does.
        Only compaction leaves such gaps on purpose, and they outlast a change of the policy.
        """
        if not rest or rest[0].base_offset == next_offset:
            return False
        if self._config.compacts or rest[0].base_offset <= self._options.cleaned_up_to:
            return False
        self._report.truncated_at = next_offset
        self._report.is_torn_tail = not any(segment.size for segment in rest)
        self._distrust_unless_torn()
        self._kept.make_room(sum(segment.size for segment in rest))
        _log.warning(
            "%s: offsets %d to %d are missing, what follows is dropped",
            self._directory.path,
            next_offset,
            rest[0].base_offset - 1,
        )
        return True

    def _recover_segment(self, segment: Segment) -> tuple[Offset, bool]:
        counter = self._options.counter
        recovery = SegmentRecovery(
            segment,
            self._producers,
            log_start_offset=self._log_start_offset(),
            add_epoch=self._add_epoch,
            counter=counter,
        )
        error = recovery.run()
        self._report.scanned_bytes += segment.records.size
        if error is not None:
            counter.scanned_bytes += segment.records.size - recovery.valid_bytes
            self._cut(segment, recovery.valid_bytes, recovery.next_offset, error)
        segment.indexes.finish()
        segment.records.trim()
        segment.close()
        counter.segments += 1
        return recovery.next_offset, error is not None

    def _cut(
        self, segment: Segment, valid_bytes: int, next_offset: Offset, error: CorruptLogError
    ) -> None:
        report = self._report
        report.truncated_at = next_offset
        higher = self._segments.higher(segment.base_offset)
        report.is_torn_tail = (higher is None or higher.size == 0) and not valid_batch_follows(
            segment.records, valid_bytes, next_offset
        )
        self._distrust_unless_torn()
        if not report.is_torn_tail:
            following = self._segments.starting_with(segment.base_offset)[1:]
            self._kept.make_room(segment.size - valid_bytes + sum(s.size for s in following))
            self._kept.keep_tail(segment, valid_bytes)
        report.truncated_bytes += segment.records.truncate(valid_bytes)
        _log.warning(
            "%s ends at offset %d now, %d bytes are cut off (%s): %s",
            segment.records.path,
            next_offset,
            report.truncated_bytes,
            "a torn tail" if report.is_torn_tail else "valid records followed",
            error,
        )

    def _distrust_unless_torn(self) -> None:
        """Remove the trust marker before the log is cut, because records are lost: if this process
        ends before the broker registers, the next start finds an undamaged log and could not know.
        """
        if not self._report.is_torn_tail:
            distrust(self._environment.file_system, self._directory.parent)

    def _drop(self, segments: list[Segment]) -> None:
        for segment in reversed(segments):
            self._report.truncated_bytes += segment.size
            self._segments.remove(segment)
            if segment.size and not self._report.is_torn_tail:
                self._kept.keep_segment(segment)
            segment.remove()
            self._snapshots.remove(segment.base_offset)

    # State derived from the log end

    def _log_start_offset(self) -> Offset:
        first = self._segments.first.base_offset if len(self._segments) else 0
        return max(self._known_start, first)

    def _settle_start(self, log_end_offset: Offset) -> tuple[Offset, Offset]:
        """Return log start and end; a log that ends before its start begins anew there."""
        if len(self._segments) and log_end_offset < self._known_start:
            _log.warning(
                "%s ends at %d, before its log start %d: all of it is dropped",
                self._directory.path,
                log_end_offset,
                self._known_start,
            )
            for segment in self._segments:
                segment.remove()
            self._segments.clear()
            self._producers.clear()
            self._epochs.clear()
            log_end_offset = self._known_start
        if not len(self._segments):
            location = SegmentLocation(self._directory, log_end_offset)
            segment = Segment(
                self._environment,
                location,
                self._config,
                size=0,
                created_ms=self._options.now_ms,
            )
            segment.create()
            self._segments.add(segment)
        return min(self._log_start_offset(), log_end_offset), log_end_offset

    def _drop_epochs_from(self, offset: Offset) -> None:
        """Forget the epochs that begin at ``offset`` or beyond: batches say which there are. The
        file may be older than a truncation, or newer than batches that a power loss has removed.
        """
        self._dropped_epochs = {e: start for e, start in self._epochs.entries() if start >= offset}
        self._epochs.truncate_from_end(offset)

    def _add_epoch(self, epoch: LeaderEpoch, offset: Offset) -> None:
        """Record a batch that lies in the log. Where compaction has removed the first batches of an
        epoch, only the file has its start offset.
        """
        if epoch < 0 or self._epochs.epoch_for_offset(offset) == epoch:
            return
        entries = self._epochs.entries()
        start = self._dropped_epochs.get(epoch, offset)
        follows = not entries or entries[-1][1] < start <= offset
        self._epochs.assign(epoch, start if self._config.compacts and follows else offset)

    def _settle_epochs(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        if self._epochs.entries() != self._epochs_on_disk:
            write_leader_epochs(self._environment.file_system, self._directory, self._epochs)

    def _settle_producers(self, log_start_offset: Offset, log_end_offset: Offset) -> None:
        if self._options.had_clean_shutdown and self._report.truncated_at is None:
            if self._snapshots.offsets:
                start = restore_snapshot(
                    self._producers,
                    self._snapshots,
                    self._environment,
                    log_start_offset=log_start_offset,
                    up_to=log_end_offset,
                    now_ms=self._options.now_ms,
                )
                replay_log(self._producers, self._segments, start, log_end_offset)
        else:
            self._snapshots.keep(above=log_start_offset, up_to=log_end_offset)
        self._producers.expire(self._options.now_ms, self._environment.producer_id_expiration_ms)
        self._snapshots.keep_segments(self._segments.base_offsets)

    def _recovery_point(self, log_end_offset: Offset) -> Offset:
        if self._options.had_clean_shutdown and self._report.truncated_at is None:
            return log_end_offset
        return min(self._options.recovery_point, log_end_offset)


def _offset_before(name: str, suffix: str) -> Offset | None:
    """Return the offset in a name with this suffix after a segment's; None for other names."""
    if not name.endswith(suffix):
        return None
    parsed = parse_file_name(name.removesuffix(suffix))
    return parsed[0] if parsed and parsed[1] in SEGMENT_EXTENSIONS else None
