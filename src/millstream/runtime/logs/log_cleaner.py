"""Compacts the logs of this broker, the dirtiest first.

Every ``log.cleaner.backoff.ms`` each idle one of ``log.cleaner.threads`` lanes takes the compacted
log with the largest share of dirty bytes, or one that is overdue, and goes on until none is worth
it. Reading and writing run on the lane; the loop, which owns the logs, makes the plan and puts each
new segment into its place, in two short steps (``storage.log_compaction``)::

    loop   plan                    swap in            finish the swap
    lane         map, new segment          rename old                 flush names

A log that is damaged is not cleaned again until the next start. How far a log is clean stands in
``cleaner-offset-checkpoint``; truncation takes it back, and a move, during which the log is left
alone, takes it along. Kafka: ``LogCleaner``, ``LogCleanerManager``.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.config.dynamic import DynamicConfig
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, StorageError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.runtime.logs.cleaner_throttle import CleanerThrottle
from millstream.runtime.offload import Offload
from millstream.storage.cleanable import CleanableRange, CleaningAbortedError, find_cleanable
from millstream.storage.cleaner_checkpoint import read_cleaner_checkpoint
from millstream.storage.durability import NEVER_TRUNCATED
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

if TYPE_CHECKING:  # what cleans is loaded with the first cleaning: many brokers compact nothing
    from millstream.storage.cleaner import CleanedSegment
    from millstream.storage.offset_map import OffsetMap

log = logging.getLogger(__name__)

_MIB: Final = 1 << 20
_PYTHON_BUFFER_BYTES: Final = 32_768


@dataclass(slots=True, eq=False)
class _Job:
    """A cleaning that is under way."""

    log: Log
    lane: str
    is_aborted: bool = False
    ended: Deferred[None] = field(default_factory=Deferred)

    def check(self) -> None:
        """Raise CleaningAbortedError once somebody has asked for it, or the topic is compacted no
        more. Any thread.
        """
        if self.is_aborted:
            raise CleaningAbortedError("aborted")
        if not self.log.config.compacts:
            raise CleaningAbortedError("the topic is compacted no more")


class LogCleaner:
    """The cleaner of one broker."""

    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        config: DynamicConfig,
        *,
        log_manager: LogManager,
        environment: LogEnvironment,
        on_storage_error: Callable[[StorageError], None],
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._config = config
        self._log_manager = log_manager
        self._environment = environment
        self._on_storage_error = on_storage_error
        self._throttle = CleanerThrottle(
            lambda: self._config.current.log_cleaner_io_max_bytes_per_second
        )
        self._jobs: dict[TopicPartition, _Job] = {}
        self._paused: Counter[TopicPartition] = Counter()
        self._checkpoints: dict[TopicPartition, tuple[TopicId | None, Offset]] = {}
        self._uncleanable: dict[TopicPartition, TopicId | None] = {}
        self._outdated: set[str] = set()
        self.runs = 0
        """Logs that were cleaned."""
        self.run_ms = 0.0
        """The time that took."""
        self._timer: TimerHandle | None = None
        self._stopped = True

    def start(self) -> None:
        """Read the checkpoints and begin. The logs are loaded already."""
        for directory in self._log_manager.directories:
            try:
                found = read_cleaner_checkpoint(self._environment.file_system, directory)
            except StorageError as error:
                self._on_storage_error(error)
                continue
            for topic_partition, offset in found.items():
                opened = self._log_manager.get(topic_partition)
                # What recovery cut off may come back as something else.
                if (
                    opened is not None
                    and opened.log_directory == directory
                    and offset <= opened.log_end_offset
                ):
                    self._checkpoints[topic_partition] = (opened.topic_id, offset)
                else:
                    self._outdated.add(directory)
        self._stopped = False
        self._tick()

    def stop(self) -> Deferred[None]:
        """Begin nothing more, abort what is under way; filled once that has ended."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        return spawn(self._wait_for(list(self._jobs.values())))

    @property
    def busy(self) -> Collection[TopicPartition]:
        """The partitions that are being cleaned: retention leaves them for the next time."""
        return self._jobs.keys()

    @property
    def uncleanable(self) -> Collection[TopicPartition]:
        """The partitions that could not be cleaned and are left alone."""
        return self._uncleanable.keys()

    def first_dirty_offset(self, topic_partition: TopicPartition) -> Offset | None:
        """Return how far a log is clean, None where nothing is known."""
        opened = self._log_manager.get(topic_partition)
        return None if opened is None else self._checkpoint_of(opened)

    def abort_and_pause(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Leave a log alone until :meth:`resume`, called as often; filled once that is so."""
        self._paused[topic_partition] += 1
        job = self._jobs.get(topic_partition)
        return spawn(self._wait_for([] if job is None else [job]))

    def resume(self, topic_partition: TopicPartition) -> None:
        """Undo one :meth:`abort_and_pause`."""
        assert self._paused[topic_partition] > 0, "cleaning was not paused"
        self._paused[topic_partition] -= 1
        if not self._paused[topic_partition]:
            del self._paused[topic_partition]

    async def _wait_for(self, jobs: list[_Job]) -> None:
        for job in jobs:
            job.is_aborted = True
        for job in jobs:
            await job.ended

    # Choosing

    def _tick(self) -> None:
        """Put every idle lane to work, and come again."""
        if self._stopped:
            return
        self._forget_deleted()
        settings = self._config.current
        self._timer = self._clock.call_later(max(1, settings.log_cleaner_backoff_ms), self._tick)
        running = {job.lane for job in self._jobs.values()}
        for number in range(settings.log_cleaner_threads):
            lane = f"cleaner {number}"
            if lane not in running:
                self._next(lane)

    def _forget_deleted(self) -> None:
        """Take deleted topics out of the checkpoints: one made anew under the name is dirty."""
        gone = [
            topic_partition
            for topic_partition, (topic_id, _) in self._checkpoints.items()
            if (opened := self._log_manager.get(topic_partition)) is None
            or opened.topic_id != topic_id
        ]
        for topic_partition in gone:
            del self._checkpoints[topic_partition]
        directories = set(self._log_manager.directories)
        for directory in directories if gone else self._outdated & directories:
            spawn(self._rewrite_checkpoint(directory))
        self._outdated.clear()

    async def _rewrite_checkpoint(self, directory: str) -> None:
        try:
            await self._write_checkpoint(directory)
        except StorageError as error:
            self._on_storage_error(error)

    def _next(self, lane: str) -> None:
        """Let a lane clean the log that needs it most, if any does."""
        if (
            self._stopped
            or int(lane.rpartition(" ")[2]) >= self._config.current.log_cleaner_threads
        ):
            return
        chosen = self._choose()
        if chosen is None:
            return
        opened, dirty = chosen
        job = _Job(opened, lane)
        self._jobs[opened.topic_partition] = job
        spawn(self._run(job, dirty))

    def _choose(self) -> tuple[Log, CleanableRange] | None:
        best: tuple[Log, CleanableRange] | None = None
        now_ms = self._clock.now_ms()
        for opened in list(self._log_manager.logs()):
            if opened.config.compacts and self._may_clean(opened):
                try:
                    dirty = find_cleanable(opened, self._checkpoint_of(opened), now_ms=now_ms)
                except StorageError as error:
                    self._on_storage_error(error)
                    continue
                except Exception as error:
                    self._give_up(opened, error)
                    continue
                if dirty.is_worth_it(opened.config.min_cleanable_dirty_ratio) and (
                    best is None or dirty.dirty_ratio > best[1].dirty_ratio
                ):
                    best = opened, dirty
        return best

    def _may_clean(self, opened: Log) -> bool:
        topic_partition = opened.topic_partition
        if (
            topic_partition in self._jobs
            or topic_partition in self._paused
            # What has been copied already would never be cleaned at its new place.
            or topic_partition in self._log_manager.future_logs
        ):
            return False
        if topic_partition in self._uncleanable:
            if self._uncleanable[topic_partition] == opened.topic_id:
                return False
            del self._uncleanable[topic_partition]
        # Most logs have nothing but an active segment behind what is clean.
        return opened.local.active.base_offset > (self._checkpoint_of(opened) or 0)

    def _checkpoint_of(self, opened: Log) -> Offset | None:
        """Return the checkpoint of a log, if it is this topic's, no later than it was cut since."""
        topic_id, offset = self._checkpoints.get(opened.topic_partition, (None, None))
        if offset is None or topic_id != opened.topic_id:
            return None
        if opened.durability.truncated_to < offset:
            offset = opened.durability.truncated_to
            self._checkpoints[opened.topic_partition] = (topic_id, offset)
        return offset

    # Cleaning

    async def _run(self, job: _Job, dirty: CleanableRange) -> None:
        opened = job.log
        try:
            await self._clean(job, dirty)
        except CleaningAbortedError as error:
            log.info("cleaning of %s ended early: %s", opened.topic_partition, error)
        except StorageError as error:
            self._on_storage_error(error)
        except ConfigError as error:
            log.warning("cleaning of %s: %s", opened.topic_partition, error)
            return  # the lane tries again after a while: settings change
        except Exception as error:  # as in Kafka: whatever it is, the other logs go on
            if job.is_aborted or self._is_another(job):
                log.info("cleaning of %s ended early: %s", opened.topic_partition, error)
            else:
                self._give_up(opened, error)
        finally:
            del self._jobs[opened.topic_partition]
            job.ended.complete(None)
        self._clock.call_soon(partial(self._next, job.lane))

    async def _clean(self, job: _Job, dirty: CleanableRange) -> None:
        from millstream.storage.cleaner import Cleaning
        from millstream.storage.log_compaction import plan_cleaning

        opened, lane = job.log, job.lane
        started_ms = self._clock.monotonic_ms()
        self._checkpoint_of(opened)
        opened.durability.truncated_to = NEVER_TRUNCATED
        offset_map = self._new_map()
        cleaning = Cleaning(
            self._environment,
            plan_cleaning(opened, dirty, now_ms=self._clock.now_ms()),
            offset_map,
            buffer_bytes=self._buffer_bytes(offset_map),
            on_bytes=lambda count: self._throttle.take(count, job.check),
        )
        groups = await self._offload.run(lane, cleaning.build_map)
        for group in groups:
            cleaned = await self._offload.run(lane, partial(cleaning.clean_group, group))
            try:
                await self._put_in_place(job, cleaned, cut_below=dirty.first_uncleanable_offset)
            except CleaningAbortedError:
                await self._offload.run(lane, partial(cleaning.discard, cleaned))
                raise
            await self._offload.run(lane, cleaning.sync_directory)
        if self._is_another(job):
            raise CleaningAbortedError("the log is another one now")
        end_offset = min(cleaning.end_offset, opened.durability.truncated_to)
        self._checkpoints[opened.topic_partition] = (opened.topic_id, end_offset)
        await self._write_checkpoint(opened.log_directory)
        stats = cleaning.stats
        self.runs += 1
        self.run_ms += self._clock.monotonic_ms() - started_ms
        log.info(
            "cleaned %s from offset %d to %d in %.1f s: %.1f MiB read, %.1f MiB left, %d keys",
            opened.topic_partition,
            dirty.first_dirty_offset,
            end_offset,
            (self._clock.monotonic_ms() - started_ms) / 1000,
            stats.bytes_read / _MIB,
            stats.bytes_written / _MIB,
            stats.keys,
        )

    async def _put_in_place(self, job: _Job, cleaned: CleanedSegment, *, cut_below: Offset) -> None:
        from millstream.storage.log_compaction import finish_swap, swap_in

        opened = job.log
        is_other_log = self._is_another(job) or opened.durability.truncated_to < cut_below
        if job.is_aborted or is_other_log or not opened.config.compacts:
            raise CleaningAbortedError("the log is not what it was")
        swap = swap_in(opened, cleaned, self._clock.now_ms())
        await self._offload.run(job.lane, swap.retire)
        finish_swap(swap, now_ms=self._clock.now_ms())

    def _is_another(self, job: _Job) -> bool:
        """Tell whether the log was deleted, lost with its directory, moved or began to move."""
        topic_partition = job.log.topic_partition
        return (
            self._log_manager.get(topic_partition) is not job.log
            or topic_partition in self._log_manager.future_logs
        )

    def _new_map(self) -> OffsetMap:
        from millstream.storage.new_offset_map import new_offset_map

        settings = self._config.current
        return new_offset_map(
            settings.log_cleaner_dedupe_buffer_size // max(1, settings.log_cleaner_threads),
            settings.log_cleaner_io_buffer_load_factor,
            self._environment.new_id(),
        )

    def _buffer_bytes(self, offset_map: OffsetMap) -> int:
        settings = self._config.current
        share = settings.log_cleaner_io_buffer_size // max(1, settings.log_cleaner_threads) // 2
        # Python holds the interpreter's lock while it works: the loop gets its turn more often.
        return share if offset_map.in_kernel else min(share, _PYTHON_BUFFER_BYTES)

    async def _write_checkpoint(self, directory: str) -> None:
        offsets = {
            opened.topic_partition: offset
            for opened in self._log_manager.logs()
            if opened.log_directory == directory
            and (offset := self._checkpoint_of(opened)) is not None
        }
        write = self._log_manager.cleaner_checkpoint_plan(directory, offsets)
        await self._offload.run("cleaner checkpoint", write)

    def _give_up(self, opened: Log, error: Exception) -> None:
        log.error(
            "%s cannot be compacted, and is skipped until the next start: %s",
            opened.topic_partition,
            error,
            exc_info=error,
        )
        self._uncleanable[opened.topic_partition] = opened.topic_id
