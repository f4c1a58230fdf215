"""Opens all logs at the start, off the loop, and says how far a recovery has come.

After a crash each log directory is read by ``num.recovery.threads.per.data.dir`` threads, all
directories at once, each log by one thread. After a clean shutdown there is little to read, and one
thread for each directory does it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.errors import MillstreamError
from millstream.runtime.offload import Offload
from millstream.storage.directory_load import ConfigOf, DirectoryLoad
from millstream.storage.log_manager import LogManager
from millstream.storage.recovery_report import RecoveryCounter

log = logging.getLogger(__name__)

PROGRESS_MS: Final = 3_000
"""Time between two lines about the progress of a recovery."""


class LoadingStoppedError(MillstreamError):
    """Not all logs were opened, because somebody wants the broker to end."""


@dataclass(slots=True)
class _Directory:
    """A load and the counters of its threads."""

    load: DirectoryLoad
    counters: list[RecoveryCounter] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.load.directory.path

    @property
    def needs_recovery(self) -> bool:
        return not self.load.directory.had_clean_shutdown and self.load.total.logs > 0

    def done(self) -> RecoveryCounter:
        return RecoveryCounter(
            sum(counter.logs for counter in self.counters),
            sum(counter.segments for counter in self.counters),
            sum(counter.scanned_bytes for counter in self.counters),
        )


class LogLoading:
    """One start of a broker's logs."""

    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        log_manager: LogManager,
        *,
        threads_per_directory: int,
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._log_manager = log_manager
        self._threads = threads_per_directory
        self._began_ms = clock.monotonic_ms()
        self._directories: list[_Directory] = []
        self._timer: TimerHandle | None = None
        self._stopped = False

    def stop(self) -> None:
        """Open no further log; ``run`` then fails. A signal handler may call it."""
        self._stopped = True
        for each in self._directories:
            each.load.is_stopped = True

    async def run(self, config_of: ConfigOf) -> None:
        """Open every log. Failures as in ``LogManager.lock``, and LoadingStoppedError."""
        loads = self._log_manager.begin_load(config_of, now_ms=self._clock.now_ms())
        self._directories = [_Directory(load) for load in loads]
        if self._stopped:
            self.stop()
        self._began_ms = self._clock.monotonic_ms()
        running = [work for each in self._directories for work in self._start(each)]
        self._wait_to_tell()
        try:
            for work in running:
                await work
        finally:
            if self._timer is not None:
                self._timer.cancel()
        if self._stopped and any(each.load.waiting for each in self._directories):
            raise LoadingStoppedError("stopped before all logs were open")
        for each in self._directories:
            self._log_manager.finish_load(each.load)
            if each.needs_recovery:
                log.info("recovered %s: %s", each.path, self._summary(each, each.done()))
        self._log_manager.settle_moves()

    def _start(self, each: _Directory) -> list[Deferred[None]]:
        wanted = self._threads if each.needs_recovery else 1
        work = []
        for number in range(max(1, min(wanted, each.load.total.logs))):
            counter = RecoveryCounter()
            each.counters.append(counter)
            # The first takes the thread that will flush this disk.
            lane = f"recovery {number} {each.path}" if number else f"flush {each.path}"
            work.append(self._offload.run(lane, partial(each.load.run, counter)))
        return work

    def _wait_to_tell(self) -> None:
        if any(each.needs_recovery for each in self._directories):
            self._timer = self._clock.call_later(PROGRESS_MS, self._tell)

    def _tell(self) -> None:
        for each in self._directories:
            done, total = each.done(), each.load.total
            if each.needs_recovery and done.logs < total.logs:
                log.info(
                    "recovering %s: %s done; %d logs, %d segments, %.1f MB to go",
                    each.path,
                    self._summary(each, done),
                    total.logs - done.logs,
                    max(0, total.segments - done.segments),
                    max(0, total.scanned_bytes - done.scanned_bytes) / 1e6,
                )
        self._wait_to_tell()

    def _summary(self, each: _Directory, done: RecoveryCounter) -> str:
        elapsed_ms = max(1.0, self._clock.monotonic_ms() - self._began_ms)
        return (
            f"{done.logs} of {each.load.total.logs} logs, {done.segments} segments, "
            f"{done.scanned_bytes / 1e6:.1f} MB ({done.scanned_bytes / elapsed_ms / 1e3:.0f} MB/s)"
        )
