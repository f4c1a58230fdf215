"""What logs need from time to time: retention, removal of what was deleted, checkpoints, flushes
of what is due and of closed segments (``closed_segments``).

Each duty runs on a timer of its own. Deciding is done on the loop, where the logs live; removing
files, writing the checkpoints and fsync happen off it. Checkpoints are written at once, too, when
logs were deleted: they name a log by its topic and partition alone, and a topic made anew must not
begin where the one before did (Kafka: ``LogManager.asyncDelete``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from millstream.config.dynamic import DynamicConfig
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.model.topic import TopicPartition
from millstream.runtime.logs.closed_segments import ClosedSegmentFlusher
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partitions import Partitions
from millstream.storage.log_manager import LogManager

log = logging.getLogger(__name__)

_REMOVAL_CHECK_MS: Final = 1_000
_FLUSH_CHECK_MS: Final = 1_000
_PRODUCER_COUNT_CHECK_MS: Final = 2_000

MAX_PRODUCERS: Final = 100_000
"""Producers that all partitions remember together. Ids cost a stranger nothing, and each takes the
better part of a kilobyte until ``producer.id.expiration.ms`` has passed."""


class LogMaintenance:
    """The timers of one broker's logs."""

    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        config: DynamicConfig,
        log_manager: LogManager,
        partitions: Partitions,
        *,
        max_producers: int = MAX_PRODUCERS,
        busy: Callable[[], Collection[TopicPartition]] = tuple,
    ) -> None:
        """``busy`` tells which logs are being compacted: retention leaves them alone."""
        self._clock = clock
        self._offload = offload
        self._config = config
        self._log_manager = log_manager
        self._partitions = partitions
        self._max_producers = max_producers
        self._busy = busy
        self._closed_segments = ClosedSegmentFlusher(
            offload, on_flushed=self._checkpoint, on_storage_error=partitions.storage_failed
        )
        self._timers: dict[str, TimerHandle] = {}
        self._checkpointing = False
        self.deleted_segments = 0
        """Segments that retention has deleted."""
        self._outdated = False
        """True when logs are gone that the checkpoints on disk, or on their way there, may name."""

    def start(self) -> None:
        """Start the timers."""
        config = self._config
        self._log_manager.on_gone = self._forget_gone
        self._every(
            "retention", lambda: config.current.log_retention_check_interval_ms, self._retain
        )
        self._every("removal", lambda: _REMOVAL_CHECK_MS, self._remove)
        self._every(
            "checkpoint",
            self._checkpoint_interval_ms,
            self._checkpoint,
        )
        self._every("flush", lambda: _FLUSH_CHECK_MS, self._flush)
        self._every("producer count", lambda: _PRODUCER_COUNT_CHECK_MS, self._bound_producers)
        self._every(
            "producers",
            lambda: config.current.producer_id_expiration_check_interval_ms,
            self._expire_producers,
        )
        if self._log_manager.has_outdated_checkpoints:
            self._forget_gone()

    def stop(self) -> None:
        """Cancel the timers."""
        self._log_manager.on_gone = lambda: None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, duty: str, interval_ms: Callable[[], int], run: Callable[[], None]) -> None:
        """Run a duty again and again; the interval is asked each time, so changes take hold. The
        first time need not be so far off: what was due for long waits for it.
        """

        def fire() -> None:
            self._timers[duty] = self._clock.call_later(interval_ms(), fire)
            try:
                run()
            except StorageError as error:
                self._partitions.storage_failed(error)

        first_ms = min(interval_ms(), self._config.current.log_initial_task_delay_ms)
        self._timers[duty] = self._clock.call_later(first_ms, fire)

    def _retain(self) -> None:
        now_ms = self._clock.now_ms()
        self.deleted_segments += self._log_manager.delete_old_segments(
            now_ms=now_ms, busy=self._busy()
        )

    def _remove(self) -> None:
        plan = self._log_manager.removals.take_due(self._clock.now_ms())
        if plan is not None:
            self._offload.run("removal", plan).on_done(self._settle)

    def _checkpoint_interval_ms(self) -> int:
        """All checkpoints are written together, as often as the most frequent one. High watermarks
        count where they say what a log alone does not: on a broker with replicas.
        """
        config = self._config.current
        interval_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
        )
        replicas = self._partitions.replicas
        if replicas is None:
            return interval_ms
        return min(interval_ms, config.replica_high_watermark_checkpoint_interval_ms)

    def _forget_gone(self) -> None:
        """Write the checkpoints without the logs that are gone, once for all that go together."""
        if not self._outdated:
            self._outdated = True
            self._clock.call_soon(self._checkpoint)

    def _checkpoint(self) -> None:
        if self._checkpointing or not self._timers:
            return
        self._checkpointing = True
        self._outdated = False
        done = self._offload.run("checkpoint", self._log_manager.checkpoint_plan())
        done.on_done(self._checkpointed)

    def _checkpointed(self, outcome: Deferred[None]) -> None:
        self._checkpointing = False
        self._settle(outcome)
        if self._outdated:
            self._checkpoint()

    def _settle(self, outcome: Deferred[None]) -> None:
        try:
            outcome.result()
        except StorageError as error:
            self._partitions.storage_failed(error)

    def _flush(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions:
            partition.flushes.ask_if_due(now_ms)
        self._closed_segments.look(self._partitions)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            partition.log.producers.expire(now_ms=now_ms)

    def _bound_producers(self) -> None:
        """Where too many producers are remembered, forget the oldest of the fullest partitions."""
        counts = [len(partition.log.producers.entries()) for partition in self._partitions]
        if sum(counts) <= self._max_producers:
            return
        most = max(counts)
        while sum(min(count, most) for count in counts) > self._max_producers:
            most //= 2
        log.warning("more than %d producer ids: forgetting the oldest", self._max_producers)
        for partition in self._partitions:
            if len(partition.log.producers.entries()) > most:
                partition.log.producers.forget_oldest(most)
