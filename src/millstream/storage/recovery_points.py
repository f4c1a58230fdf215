"""The recovery points of one log directory, and the checkpoint that holds them.

Everything in a log below its recovery point is flushed, and after a crash recovery
begins there. The file ``recovery-point-offset-checkpoint`` holds the recovery points of all logs of
the directory. A value that is too small costs time; one that is too large costs records, for
recovery never reads what it skips. So when a log is truncated below the value in the file, the file
is rewritten before anything else happens to the log (Kafka: ``LogManager.truncateTo``).

The largest value that the file holds for a log, now or after the planned writes have run, is the
log's *claim*. :meth:`RecoveryPoints.lower` makes it due that a claim goes down; :meth:`settle`
writes what is due, for all logs at once, and a planned write that runs later does not raise it
again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial

from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.storage.checkpoint import RECOVERY_POINTS, format_offsets
from millstream.storage.files import FileSystem, replace_file

Points = dict[TopicPartition, Offset]


class RecoveryPoints:
    """The written, planned and due recovery points. One owner makes plans; writes run on any
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

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self._path = f"{directory}/{RECOVERY_POINTS}"
        self._writing = threading.Lock()
        """Held while the file is written."""
        self._state = threading.Lock()
        """Held while the fields below change, never during I/O."""
        self._on_disk: Points = {}
        self._text: str | None = None
        self._planned: dict[int, Points] = {}
        self._lowered: dict[TopicPartition, tuple[int, Offset]] = {}
        """Bounds for the writes that were planned before a claim was lowered."""
        self._due: Points = {}
        self._last_number = self._written_number = 0

    def found(self, points: Mapping[TopicPartition, Offset]) -> None:
        """Store the file's values, read when the directory was opened."""
        self._on_disk = dict(points)

    def claim_of(self, topic_partition: TopicPartition) -> Offset:
        """Return the largest recovery point that a crash may find for a log, 0 if none."""
        with self._state:
            return self._claim_of(topic_partition)

    def _claim_of(self, topic_partition: TopicPartition) -> Offset:
        claim = self._on_disk.get(topic_partition, 0)
        for number, points in self._planned.items():
            claim = max(claim, self._bounded(number, topic_partition, points))
        return claim

    def _bounded(self, number: int, topic_partition: TopicPartition, points: Points) -> Offset:
        """Return the value that the write with this number stores for a log."""
        point = points.get(topic_partition, 0)
        lowered = self._lowered.get(topic_partition)
        if lowered is not None and number < lowered[0]:
            return min(point, lowered[1])
        return point

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
                points = {each: self._claim_of(each) for each in known}
                for each, offset in due.items():
                    if each in points:
                        points[each] = min(points[each], offset)
            self._write(points, due)

    def plan(self, points: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """Return a function, safe on another thread, that writes the points of all logs. A log
        that is not among them is forgotten. The function raises OSError.
        """
        with self._state:
            self._last_number += 1
            self._planned[self._last_number] = dict(points)
            return partial(self._run, self._last_number)

    def _run(self, number: int) -> None:
        with self._writing:
            with self._state:
                planned = self._planned[number]
                points = {each: self._bounded(number, each, planned) for each in planned}
                due = dict(self._due)
            if number > self._written_number:
                self._write(points, due)
                self._written_number = number
            with self._state:
                del self._planned[number]
                if not self._planned:
                    self._lowered = {
                        each: bound for each, bound in self._lowered.items() if each in self._due
                    }

    def _write(self, points: Points, due: Points) -> None:
        text = format_offsets(points)
        if text != self._text:
            replace_file(self._file_system, self._path, text.encode("utf-8"))
        with self._state:
            self._text = text
            self._on_disk = points
            for each, offset in due.items():
                if self._due.get(each) == offset:
                    del self._due[each]
