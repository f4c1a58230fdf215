"""Moves replicas from one log directory of this broker to another (KIP-113).

A replica is copied while it serves on: whole batches, off the loop, into a ``-future`` directory.
Leaders and followers move alike, and a move goes on when the role changes. When the copy is near
the end it takes the replica's place, in these steps::

    1. hold flushes       from here on nothing more becomes durable, so no write under ``ack`` is
                          acknowledged; appends go on
    2. copy, flush        off the loop: the copy now holds on disk all that is committed
    3. copy the rest      on the loop: what was appended during step 2
    4. swap               the two renames, at once; the partition goes on in the new directory
    5. flush              answers the writes that wait

The log is not compacted meanwhile. A process that ends in between leaves one of the states that
``storage.future_logs`` lists. The setting ``replica.alter.log.dirs.io.max.bytes.per.second`` bounds
the copying before step 1. Kafka: ``ReplicaAlterLogDirsThread``.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from functools import partial
from typing import Final

from millstream.config.dynamic import DynamicConfig
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import MillstreamError, StorageError
from millstream.model.topic import TopicPartition
from millstream.runtime.logs.log_cleaner import LogCleaner
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions
from millstream.storage.directory import PartitionDirectory
from millstream.storage.file_slice import FileSlice
from millstream.storage.log import Log, LogRead
from millstream.storage.log_manager import LogManager

log = logging.getLogger(__name__)

COPY_BYTES: Final = 1 << 20
"""How much is copied at a time."""

FIRST_COPIES_ON_LOOP: Final = 4
"""How many times ``COPY_BYTES`` may be copied on the loop, to catch up with the last appends; twice
as many at each further attempt, so that a replica that is written to fast moves too.
"""

MOST_COPIES_ON_LOOP: Final = 64
"""Some tens of milliseconds of the loop."""

PAUSE_MS: Final = 100.0
"""Between two attempts to catch up: writes that waited for a flush get it."""

LONGEST_WAIT_MS: Final = 1_000.0
"""After so long a copy that waits for its turn looks at the rate again, for it may have changed."""


RETRY_MS: Final = 500.0
"""After so long a move is begun again whose replica is not open yet, or was truncated while it was
copied.
"""


@dataclass(eq=False, slots=True)
class _Move:
    """A replica that moves: its log, and the copy of that. Roles of the partition come and go."""

    source: Log
    future: Log

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose replica it is."""
        return self.source.topic_partition


class ReplicaMover:
    """The moves of one broker."""

    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        config: DynamicConfig,
        *,
        log_manager: LogManager,
        partitions: Partitions,
        cleaner: LogCleaner | None = None,
    ) -> None:
        self._cleaner = cleaner
        self._clock = clock
        self._offload = offload
        self._config = config
        self._log_manager = log_manager
        self._partitions = partitions
        self._moves: dict[TopicPartition, _Move] = {}
        self._stopped = self._resuming = False

    def move(self, partition: Partition, directory: str) -> None:
        """Begin to move a partition to another log directory that is online; a move to a third one
        is given up for it, and a move to where it lies ends one. Raises StorageError.
        """
        topic_partition = partition.topic_partition
        future = self._log_manager.future_logs.get(topic_partition)
        now_ms = self._clock.now_ms()
        if future is not None and future.log_directory == directory:
            self._start(partition, future)
            return
        self._moves.pop(topic_partition, None)
        self._log_manager.cancel_move(topic_partition, now_ms=now_ms)
        if partition.log.log_directory != directory:
            future = self._log_manager.begin_move(partition.log, directory, now_ms=now_ms)
            self._start(partition, future)

    def resume(self) -> None:
        """Go on with the moves that a restart has interrupted, and ask again later for those whose
        replica has not been opened yet. Called once the logs are loaded, and after a failed copy.
        """
        waits = False
        for future in self._log_manager.future_logs:
            partition = self._replica(future)
            if partition is None:
                waits = True
                continue
            try:
                self._start(partition, future)
            except StorageError as error:
                self._partitions.storage_failed(error)
        if waits:
            self._resume_later()

    def _resume_later(self) -> None:
        if not self._resuming and not self._stopped:
            self._resuming = True
            self._clock.call_later(RETRY_MS, self._resume_now)

    def _resume_now(self) -> None:
        self._resuming = False
        if not self._stopped:
            self.resume()

    def _replica(self, log: Log) -> Partition | None:
        """Return what this broker keeps of a log's partition, in its present role."""
        topic_partition = log.topic_partition
        return self._partitions.replica(topic_partition.topic, topic_partition.partition)

    def stop(self) -> None:
        """Copy nothing more; what is copied stays, and the next start goes on with it."""
        self._stopped = True

    def _start(self, partition: Partition, future: Log) -> None:
        if partition.topic_partition in self._moves or self._stopped:
            return
        move = _Move(partition.log, future)
        # Before anything is appended: a power loss can leave the copy ahead of the replica.
        self._cut(move)
        self._moves[partition.topic_partition] = move
        log.info("%s moves to %s", partition.topic_partition, future.log_directory)
        # A turn later, so that whoever asked has the answer before the disk is busy.
        self._clock.call_soon(lambda: spawn(self._run(move)).on_done(self._settle))

    def _settle(self, outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except StorageError as error:
            self._partitions.storage_failed(error)

    async def _run(self, move: _Move) -> None:
        cleaner, topic_partition = self._cleaner, move.topic_partition
        try:
            if cleaner is not None:
                await cleaner.abort_and_pause(topic_partition)
            await self._copy(move)
        except MillstreamError as error:
            if not self._is_wanted(move):
                return
            if isinstance(error, StorageError):
                raise
            # A follower may be truncated between a look-up and the reading of what was found.
            log.warning("%s is copied again from where it ends: %s", topic_partition, error)
            self._resume_later()
        finally:
            if cleaner is not None:
                cleaner.resume(topic_partition)
            if self._moves.get(topic_partition) is move:
                del self._moves[topic_partition]

    async def _copy(self, move: _Move) -> None:
        """Copy until the future log has taken the replica's place or nobody wants it to."""
        copies = FIRST_COPIES_ON_LOOP
        while self._is_wanted(move):
            if self._is_far_behind(move):
                await self._wait_for_turn(await self._copy_some(move))
            elif await self._finish(move, copies * COPY_BYTES):
                return
            else:
                copies = min(2 * copies, MOST_COPIES_ON_LOOP)
                await self._pause(PAUSE_MS)

    def _is_wanted(self, move: _Move) -> bool:
        """Tell whether both logs are still what they were when the move began; whether the replica
        leads or follows does not matter.
        """
        return (
            not self._stopped
            and self._partition(move) is not None
            and self._log_manager.future_logs.get(move.topic_partition) is move.future
        )

    def _partition(self, move: _Move) -> Partition | None:
        """Return the partition in its present role, None once it has another log or none."""
        found = self._replica(move.source)
        return found if found is not None and found.log is move.source else None

    def _is_far_behind(self, move: _Move) -> bool:
        """Tell whether more is to be copied than is worth holding flushes for."""
        read = self._read(move)
        return read.cold is not None or (
            read.records is not None and read.records.size >= COPY_BYTES // 2
        )

    def _read(self, move: _Move) -> LogRead:
        """Return what comes next; the copy is in line with the replica then."""
        self._cut(move)
        source, future = move.source, move.future
        read = source.reader.read(
            future.log_end_offset,
            max_bytes=COPY_BYTES,
            upper_bound_offset=source.log_end_offset,
            min_one_batch=True,
            wait_for_disk=False,
        )
        nothing = read.records is None and read.cold is None
        if nothing and future.log_end_offset < source.log_end_offset:
            future.appender.skip_to(source.log_end_offset, now_ms=self._clock.now_ms())
        return read

    def _cut(self, move: _Move) -> None:
        """Cut off the copy what the replica has not got, or not any more."""
        source, future, now_ms = move.source, move.future, self._clock.now_ms()
        if future.log_end_offset < source.log_start_offset:
            future.truncation.truncate_fully_and_start_at(source.log_start_offset, now_ms=now_ms)
        while future.latest_epoch >= 0:
            known = source.end_offset_for_epoch(future.latest_epoch)
            if not 0 <= known.end_offset < future.log_end_offset:
                break
            future.truncation.truncate_to(
                max(known.end_offset, future.log_start_offset), now_ms=now_ms
            )
        if future.log_end_offset > source.log_end_offset:
            future.truncation.truncate_to(source.log_end_offset, now_ms=now_ms)

    async def _copy_some(self, move: _Move) -> int:
        """Copy once, off the loop; return how many bytes."""
        read, future = self._read(move), move.future
        lane = f"move {future.log_directory}"
        if read.cold is not None:
            await self._offload.run(lane, read.cold.run)
            return 0
        records = read.records
        if records is None:
            return 0
        now_ms, source = self._clock.now_ms(), move.source.log_directory
        await self._offload.run(lane, lambda: _transfer(records, source, future, now_ms))
        return records.size

    async def _wait_for_turn(self, copied_bytes: int) -> None:
        """Wait for as long as so many bytes take at the rate that is set, which may change
        meanwhile; 0 lets nothing more through.
        """
        left_bytes = float(copied_bytes)
        while not self._stopped:
            limit = self._config.current.replica_alter_log_dirs_io_max_bytes_per_second
            delay_ms = min(LONGEST_WAIT_MS, left_bytes * 1000 / limit if limit else math.inf)
            if delay_ms < 1:
                return
            await self._pause(delay_ms)
            left_bytes -= limit * delay_ms / 1000

    async def _pause(self, delay_ms: float) -> None:
        elapsed: Deferred[None] = Deferred()
        self._clock.call_later(delay_ms, partial(elapsed.complete, None))
        await elapsed

    async def _finish(self, move: _Move, most_bytes: int) -> bool:
        """Let the copy take the replica's place; False when more than ``most_bytes`` were appended
        while it was flushed, or the replica has another role since.
        """
        partition, future = self._partition(move), move.future
        assert partition is not None
        partition.flushes.hold()
        taken = False
        try:
            held_end = move.source.log_end_offset
            while self._is_wanted(move):
                await self._copy_some(move)
                if future.log_end_offset >= min(held_end, move.source.log_end_offset):
                    break
            plan = future.flush_plan()
            if plan is not None:
                await self._offload.run(f"move {future.log_directory}", plan.run)
                future.flushed(plan)
            # A partition in another role than before was flushed since, beyond the copy.
            is_held = self._is_wanted(move) and self._partition(move) is partition
            if is_held and self._catch_up(move, most_bytes):
                taken = True
                self._swap(move, partition)
        finally:
            if not taken:
                partition.flushes.release()
        return taken

    def _catch_up(self, move: _Move, most_bytes: int) -> bool:
        """Copy the rest on the loop; False when it is more than ``most_bytes``."""
        source, future = move.source, move.future
        copied_bytes = 0
        while copied_bytes < most_bytes:
            records = self._read(move).records
            if records is None:
                break
            _transfer(records, source.log_directory, future, self._clock.now_ms())
            copied_bytes += records.size
        return future.log_end_offset == source.log_end_offset

    def _swap(self, move: _Move, partition: Partition) -> None:
        topic_partition = move.topic_partition
        try:
            moved, left = self._log_manager.finish_move(topic_partition)
        except StorageError:
            partition.flushes.release()
            raise
        moved.update_config(move.source.config)
        self._partitions.flusher.forget(partition)
        partition.flushes.release(moved)
        log.info("%s has been moved to %s", topic_partition, moved.log_directory)
        outcome = self._offload.run(
            f"move {moved.log_directory}",
            self._log_manager.future_logs.sync_plan([left.parent, moved.log_directory]),
        )
        outcome.on_done(lambda done: self._remove(left, moved, done))

    def _remove(self, left: PartitionDirectory, moved: Log, synced: Deferred[None]) -> None:
        """Give what the move left behind to deletion, now that its successor's name is on disk."""
        try:
            synced.result()
        except StorageError as error:
            self._partitions.storage_failed(error)
            return
        due_ms = self._clock.now_ms() + moved.config.file_delete_delay_ms
        self._log_manager.remove_later(left, due_ms)


def _transfer(records: FileSlice, source: str, future: Log, now_ms: int) -> None:
    """Append what lies in the log directory ``source`` to a future log. Raises StorageError."""
    try:
        data = records.read()
    except OSError as error:
        raise StorageError(source, f"reading failed: {error}") from error
    future.follower_appender.append_as_follower(data, now_ms=now_ms)
