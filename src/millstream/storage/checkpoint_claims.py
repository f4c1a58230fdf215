"""The recovery points, log starts, high watermarks and first dirty offsets of one log directory,
and the checkpoints that hold them.

Everything in a log below its recovery point is on disk for certain, and after a crash recovery
begins there. Below its log start nothing is kept; a log that is found to end before it begins anew
there. Below its high watermark everything is committed, as far as the log goes. Below its first
dirty offset it is compacted. The files ``recovery-point-offset-checkpoint``,
``log-start-offset-checkpoint``, ``replication-offset-checkpoint`` and ``cleaner-offset-checkpoint``
say so for all logs of the directory. A value that is too small costs time; one that is too large
costs records: what a recovery point skips is never looked at, what lies below a log start is
dropped, below a high watermark consumers read what other replicas may not have, once a log that was
cut (after an unclean election) has grown again, and below a first dirty offset a tombstone goes in
time though the record that it deletes is there. So a log that is cut back below what a file says,
or made anew under its name, has that file written anew before anything else happens to it (Kafka:
``LogManager.truncateTo``, for recovery points and first dirty offsets).

What a file says of a log, or will say once the writes that are planned have run, is the log's
*claim*. :meth:`CheckpointClaims.lower` makes it due that a claim goes down;
:meth:`CheckpointClaims.settle` writes what is due, for all logs at once, and a planned write that
runs later does not raise it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.storage.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    format_offsets,
)
from millstream.storage.files import FileSystem, replace_file

Offsets = dict[TopicPartition, Offset]


class OffsetClaims:
    """The written, planned and due offsets of one file. One owner makes plans; writes run on any
    thread.
    """

    __slots__ = (
        "_due",
        "_file_system",
        "_last_number",
        "_lowered",
        "_on_disk",
        "_path",
        "_planned",
        "_state",
        "_text",
        "_writing",
        "_written_number",
    )

    def __init__(self, file_system: FileSystem, path: str) -> None:
        self._file_system = file_system
        self._path = path
        self._writing = threading.Lock()
        """Held while the file is written."""
        self._state = threading.Lock()
        """Held while the fields below change, never during I/O."""
        self._on_disk: Offsets = {}
        self._text: str | None = None
        self._planned: dict[int, Offsets] = {}
        self._lowered: dict[TopicPartition, tuple[int, Offset]] = {}
        """Bounds for the writes that were planned before a claim was lowered."""
        self._due: Offsets = {}
        self._last_number = self._written_number = 0

    def found(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Store the file's values, read when the directory was opened."""
        self._on_disk = dict(offsets)

    def _claim_of(self, topic_partition: TopicPartition) -> Offset:
        claim = self._on_disk.get(topic_partition, 0)
        for number, offsets in self._planned.items():
            claim = max(claim, self._bounded(number, topic_partition, offsets))
        return claim

    def _bounded(self, number: int, topic_partition: TopicPartition, offsets: Offsets) -> Offset:
        """Return the value that the write with this number stores for a log."""
        offset = offsets.get(topic_partition, 0)
        lowered = self._lowered.get(topic_partition)
        if lowered is not None and number < lowered[0]:
            return min(offset, lowered[1])
        return offset

    def lower(self, topic_partition: TopicPartition, offset: Offset) -> bool:
        """Make it due that a log's claim is at most ``offset``; False where it is no more already
        and nothing is due.
        """
        with self._state:
            if topic_partition not in self._due and self._claim_of(topic_partition) <= offset:
                return False
            offset = min(offset, self._due.get(topic_partition, offset))
            self._due[topic_partition] = offset
            self._last_number += 1
            self._lowered[topic_partition] = self._last_number, offset
            return True

    def settle(self) -> None:
        """Write what is due, durably; do nothing where nothing is. Any thread. Raises OSError."""
        with self._writing:
            with self._state:
                if not self._due:
                    return
                due = dict(self._due)
                known = {*self._on_disk, *(each for one in self._planned.values() for each in one)}
                offsets = {each: self._claim_of(each) for each in known}
                for each, offset in due.items():
                    if each in offsets:
                        offsets[each] = min(offsets[each], offset)
            self._write(offsets, due)

    def plan(self, offsets: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes the offsets of all logs. A log
        that is not among them is forgotten. The function raises OSError.
        """
        with self._state:
            self._last_number += 1
            self._planned[self._last_number] = dict(offsets)
            return partial(self._run, self._last_number)

    def _run(self, number: int) -> None:
        with self._writing:
            with self._state:
                planned = self._planned[number]
                offsets = {each: self._bounded(number, each, planned) for each in planned}
                due = dict(self._due)
            if number > self._written_number:
                self._write(offsets, due)
                self._written_number = number
            with self._state:
                del self._planned[number]
                if not self._planned:
                    self._lowered = {
                        each: bound for each, bound in self._lowered.items() if each in self._due
                    }

    def _write(self, offsets: Offsets, due: Offsets) -> None:
        text = format_offsets(offsets)
        if text != self._text:
            replace_file(self._file_system, self._path, text.encode("utf-8"))
        with self._state:
            self._text = text
            self._on_disk = offsets
            for each, offset in due.items():
                if self._due.get(each) == offset:
                    del self._due[each]


class CheckpointClaims:
    """The four files of one log directory."""

    __slots__ = ("_all", "dirty_offsets", "high_watermarks", "log_starts", "recovery_points")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self.recovery_points = OffsetClaims(file_system, f"{directory}/{RECOVERY_POINTS}")
        self.log_starts = OffsetClaims(file_system, f"{directory}/{LOG_START_OFFSETS}")
        self.high_watermarks = OffsetClaims(file_system, f"{directory}/{HIGH_WATERMARKS}")
        self.dirty_offsets = OffsetClaims(file_system, f"{directory}/{CLEANER_OFFSETS}")
        self._all = (
            self.recovery_points,
            self.log_starts,
            self.high_watermarks,
            self.dirty_offsets,
        )

    def lower(self, topic_partition: TopicPartition, offset: Offset) -> bool:
        """Make it due that no file says more than ``offset`` of a log; False where none does
        already and nothing is due.
        """
        due = [each.lower(topic_partition, offset) for each in self._all]
        return any(due)

    def settle(self) -> None:
        """Write what is due, durably; do nothing where nothing is. Any thread. Raises OSError."""
        for each in self._all:
            each.settle()
