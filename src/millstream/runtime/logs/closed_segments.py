"""Brings closed segments to the disk, soon after they are closed and off the loop.

A segment that is closed is complete: once it is flushed, the recovery point moves up to where the
next one begins, and a start after a kill need not read it. Under the flush policies ``ack`` and
``interval`` the writes themselves take care of that. Under ``os`` nothing else would, and an error
of the disk would be found by nobody.

One round at a time for each log directory, on a lane of its own, so that no write that waits for
its own flush stands behind a whole segment. A round is a few segments of a few logs: only their
files are flushed, and appends go on. When all is done the checkpoints are written. Kafka: the task
``flush-log`` that ``UnifiedLog.roll`` schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.storage.flush import FlushPlan, run_together

LOGS_OF_A_ROUND: Final = 8
"""Each takes a few segments, and each of these opens five files."""

_Round: TypeAlias = list[tuple[Partition, FlushPlan]]


class ClosedSegmentFlusher:
    """Flushes what is closed. ``on_flushed`` is called when nothing is left in a directory,
    ``on_storage_error`` when its disk fails.
    """

    def __init__(
        self,
        offload: Offload,
        *,
        on_flushed: Callable[[], None],
        on_storage_error: Callable[[StorageError], None],
    ) -> None:
        self._offload = offload
        self._on_flushed = on_flushed
        self._on_storage_error = on_storage_error
        self._waiting: dict[str, dict[Partition, None]] = {}
        self._running: set[str] = set()

    def look(self, partitions: Iterable[Partition]) -> None:
        """Begin to flush what is closed in these partitions. Called every second."""
        for partition in partitions:
            self._add(partition)
        for directory in list(self._waiting):
            self._start(directory)

    def _add(self, partition: Partition) -> None:
        log = partition.log
        if log.has_unflushed_closed_segments and not partition.is_gone:
            self._waiting.setdefault(log.log_directory, {})[partition] = None

    def _start(self, directory: str) -> None:
        if directory in self._running:
            return
        waiting = self._waiting.get(directory, {})
        round_: _Round = []
        while waiting and not round_:
            some = list(islice(waiting, LOGS_OF_A_ROUND))
            for partition in some:
                del waiting[partition]
            round_ = [(each, plan) for each in some if (plan := _plan(each, directory)) is not None]
        if not round_:
            self._waiting.pop(directory, None)
            return
        self._running.add(directory)
        plans = [plan for _, plan in round_]
        done = self._offload.run(f"flush closed {directory}", lambda: run_together(plans))
        done.on_done(lambda outcome: self._finish(directory, round_, outcome))

    def _finish(self, directory: str, round_: _Round, outcome: Deferred[None]) -> None:
        self._running.discard(directory)
        try:
            outcome.result()
        except StorageError as error:
            # A failed fsync is final: the kernel may have dropped the pages it could not write.
            self._waiting.pop(directory, None)
            self._on_storage_error(error)
            return
        for partition, plan in round_:
            if plan.durability.flushed(plan):
                self._add(partition)
        self._start(directory)
        if directory not in self._running:
            self._on_flushed()


def _plan(partition: Partition, directory: str) -> FlushPlan | None:
    """Return what is to be flushed, None where the log is gone or lies elsewhere by now."""
    if partition.is_gone or partition.log.log_directory != directory:
        return None
    return partition.flushes.begin_closed()
