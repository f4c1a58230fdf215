"""Writes records of the audit log into a file: one line each, off the loop.

What cannot be written waits and is tried again; what does not fit into the queue meanwhile is
refused (``add``). A failure is logged once, and its end.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.runtime.offload import Offload
from millstream.security.audit.machine import Entry
from millstream.storage.appended_file import AppendedFile

log = logging.getLogger(__name__)

LANE: Final = "audit-log"
RETRY_MS: Final = 1_000
MAX_BATCH_BYTES: Final = 1 << 20

Written = tuple[int, OSError | None]


class FileSink:
    """``on_room`` is called when records were written: there is room for others."""

    def __init__(
        self,
        path: str,
        *,
        clock: Clock,
        offload: Offload,
        max_bytes: int,
        on_room: Callable[[], None],
    ) -> None:
        self._path = os.path.abspath(path)
        self._file = AppendedFile(self._path)
        self._clock = clock
        self._offload = offload
        self._max_bytes = max_bytes
        self._on_room = on_room
        self._queue: deque[Entry] = deque()
        self._bytes = 0
        self._is_writing = False
        self._timer: TimerHandle | None = None
        self._failure = ""
        self._is_closed = False
        self.failures = 0
        """How many writes have failed since the start."""

    def add(self, entry: Entry) -> bool:
        """Take a record; False where there is no room for it."""
        size = len(entry.value)
        if self._bytes + size > self._max_bytes:
            return False
        self._queue.append(entry)
        self._bytes += size
        if not self._is_writing and self._timer is None:
            self._is_writing = True
            # What else comes in this pass of the loop shares the write.
            self._clock.call_soon(self._write)
        return True

    @property
    def is_empty(self) -> bool:
        """True when all that was taken is in the file."""
        return not self._queue

    def reopen(self) -> None:
        """Open the file again before the next write; one that failed is tried at once."""
        self._offload.run(LANE, self._file.reopen)
        self.hurry()

    def hurry(self) -> None:
        """Try a write that failed again now."""
        if self._timer is not None:
            self._timer.cancel()
            self._retry()

    def close(self) -> list[Entry]:
        """Close the file, after what is being written; return what is not known to be in it.
        Nothing else is written from then on.
        """
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._offload.run(LANE, self._file.close)
        return list(self._queue)

    def _write(self) -> None:
        if self._is_closed:  # since it was told to
            return
        lines: list[bytes] = []
        size = 0
        for entry in self._queue:
            size += len(entry.value)
            if lines and size > MAX_BATCH_BYTES:
                break
            lines.append(entry.value + b"\n")
        self._offload.run(LANE, lambda: self._file.append(lines)).on_done(self._wrote)

    def _wrote(self, outcome: Deferred[Written]) -> None:
        count, failure = outcome.result()
        if self._is_closed:
            return
        for _ in range(count):
            self._bytes -= len(self._queue.popleft().value)
        if failure is not None:
            self._failed(failure)
        elif self._failure:
            self._failure = ""
            log.warning("the audit log is written to %s again", self._path)
        if failure is None and self._queue:
            self._write()
        elif failure is None:
            self._is_writing = False
        if count:
            self._on_room()

    def _failed(self, failure: OSError) -> None:
        self.failures += 1
        if not self._failure:
            log.error(
                "the audit log cannot be written to %s (%s): records wait, and are lost when %d "
                "bytes of them do",
                self._path,
                failure.strerror,
                self._max_bytes,
            )
        self._failure = failure.strerror or str(failure)
        self._is_writing = False
        self._timer = self._clock.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._timer = None
        if self._queue and not self._is_writing:
            self._is_writing = True
            self._write()
