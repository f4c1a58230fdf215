"""Group commit: one fsync at a time per log directory, shared by every write that came meanwhile.

While a disk works on one round, new writes gather; the next round takes them all. So a busy broker
pays one fsync for many acknowledgements, and an idle one answers after exactly one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.storage.flush import FlushPlan, run_together


class Flusher:
    """Brings partitions' newest records to the disk, off the loop."""

    def __init__(
        self, clock: Clock, offload: Offload, on_storage_error: Callable[[StorageError], None]
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._on_storage_error = on_storage_error
        self._dirty: dict[str, dict[Partition, None]] = {}
        self._running: set[str] = set()

    def request(self, partition: Partition) -> None:
        """Flush the partition soon, and call its ``flushes.done``."""
        directory = partition.log.log_directory
        dirty = self._dirty.get(directory)
        if dirty is None:
            dirty = self._dirty[directory] = {}
        if not dirty and directory not in self._running:
            # After what runs now, so that all requests of one read of a socket share the round.
            self._clock.call_soon(lambda: self._start(directory))
        dirty[partition] = None

    def forget(self, partition: Partition) -> None:
        """Drop a partition that is closed or deleted."""
        for dirty in self._dirty.values():
            dirty.pop(partition, None)

    def _start(self, directory: str) -> None:
        dirty = self._dirty.get(directory)
        if not dirty or directory in self._running:
            return
        self._dirty[directory] = {}
        round_ = [
            (partition, plan)
            for partition in dirty
            if (plan := partition.flushes.begin()) is not None
        ]
        if not round_:
            return
        self._running.add(directory)
        plans = [plan for _, plan in round_]
        done = self._offload.run(f"flush {directory}", lambda: run_together(plans))
        done.on_done(lambda outcome: self._finish(directory, round_, outcome))

    def _finish(
        self, directory: str, round_: list[tuple[Partition, FlushPlan]], outcome: Deferred[None]
    ) -> None:
        self._running.discard(directory)
        try:
            outcome.result()
        except StorageError as error:
            # A failed fsync is final: the kernel may have dropped the pages it could not write.
            self._on_storage_error(error)
            return
        # Whatever one partition's waiters do, the others get their answers and the next round runs.
        with ExitStack() as stack:
            stack.callback(self._start, directory)
            for partition, plan in reversed(round_):
                stack.callback(partition.flushes.done, plan)
