"""What logs need from time to time: retention, removal of what was deleted, checkpoints, flushes.

Each duty runs on a timer of its own. Deciding is done on the loop, where the logs live; writing the
checkpoints and fsync happen off it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.config.dynamic import DynamicConfig
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import StorageError
from millstream.runtime.offload import Offload
from millstream.runtime.partitions import Partitions
from millstream.storage.log_manager import LogManager

_REMOVAL_CHECK_MS: Final = 1_000
_FLUSH_CHECK_MS: Final = 1_000


class LogMaintenance:
    """The timers of one broker's logs."""

    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        config: DynamicConfig,
        log_manager: LogManager,
        partitions: Partitions,
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._config = config
        self._log_manager = log_manager
        self._partitions = partitions
        self._timers: dict[str, TimerHandle] = {}
        self._checkpointing = False

    def start(self) -> None:
        """Start the timers."""
        config = self._config
        self._every(
            "retention", lambda: config.current.log_retention_check_interval_ms, self._retain
        )
        self._every("removal", lambda: _REMOVAL_CHECK_MS, self._remove)
        self._every(
            "checkpoint",
            lambda: config.current.log_flush_offset_checkpoint_interval_ms,
            self._checkpoint,
        )
        self._every("flush", lambda: _FLUSH_CHECK_MS, self._flush)
        self._every(
            "producers",
            lambda: config.current.producer_id_expiration_check_interval_ms,
            self._expire_producers,
        )

    def stop(self) -> None:
        """Cancel the timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _every(self, duty: str, interval_ms: Callable[[], int], run: Callable[[], None]) -> None:
        """Run a duty again and again; the interval is asked each time, so changes take hold."""

        def fire() -> None:
            self._timers[duty] = self._clock.call_later(interval_ms(), fire)
            try:
                run()
            except StorageError as error:
                self._partitions.storage_failed(error)

        self._timers[duty] = self._clock.call_later(interval_ms(), fire)

    def _retain(self) -> None:
        self._log_manager.delete_old_segments(now_ms=self._clock.now_ms())

    def _remove(self) -> None:
        due_ms = self._log_manager.next_removal_ms()
        now_ms = self._clock.now_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._log_manager.remove_deleted(now_ms=now_ms)

    def _checkpoint(self) -> None:
        if self._checkpointing:
            return
        self._checkpointing = True
        done = self._offload.run("checkpoint", self._log_manager.checkpoint_plan())
        done.on_done(self._checkpointed)

    def _checkpointed(self, outcome: Deferred[None]) -> None:
        self._checkpointing = False
        try:
            outcome.result()
        except StorageError as error:
            self._partitions.storage_failed(error)

    def _flush(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for partition in self._partitions:
            partition.flush_if_due(now_ms)

    def _expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            partition.log.expire_producers(now_ms=now_ms)
