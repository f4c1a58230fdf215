"""What has to reach the disk, gathered on the owner's thread and carried out on any.

A plan holds the open files, so it can run while the log goes on, rolls, or is deleted. It reads
and changes nothing of the log; that is told afterwards (``Log.flushed``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from millstream.model.errors import StorageError
from millstream.model.offsets import Offset
from millstream.storage.files import File, FileSystem

MANY_FLUSHES: Final = 8
"""From so many on, one flush of the whole volume is faster than a flush of each, side by side."""


class FlushPlan:
    """Flushes of one log: its segments' files, small files by path, then directories."""

    __slots__ = (
        "_directories",
        "_failure",
        "_file_system",
        "cuts",
        "files",
        "log_directory",
        "paths",
        "recovery_point",
    )

    def __init__(
        self,
        file_system: FileSystem,
        log_directory: str,
        recovery_point: Offset,
        *,
        files: Sequence[File],
        paths: Sequence[str],
        directories: Sequence[str],
        failure: OSError | None = None,
    ) -> None:
        self._file_system = file_system
        self.log_directory = log_directory
        self.recovery_point = recovery_point
        """Where the log ended when the plan was made: all below is on disk once it has run."""
        self.cuts = 0
        """How often the log had been cut back by then (``Log.flushed``)."""
        self.files = files
        self.paths = paths
        self._directories = directories
        self._failure = failure

    def run(self) -> None:
        """Flush everything. Raises StorageError, which is final for the log directory."""
        self.run_with(())

    def _open_all(self) -> list[File]:
        files = list(self.files)
        for path in self.paths:
            # A file that is gone by now was deleted, and needs no flush.
            with contextlib.suppress(FileNotFoundError):
                files.append(self._file_system.open(path))
        return files

    @property
    def count(self) -> int:
        """How many flushes the plan takes."""
        return len(self.files) + len(self.paths) + len(self._directories)

    def run_with(self, others: Sequence[FlushPlan]) -> None:
        """Run this plan and those of other logs in the same log directory, in the cheaper way.

        Raises StorageError, which is final for the log directory.
        """
        plans = (self, *others)
        try:
            for plan in plans:
                if plan._failure is not None:
                    raise plan._failure
            if sum(plan.count for plan in plans) >= MANY_FLUSHES:
                self._file_system.sync_all(self.log_directory)
                return
            self._file_system.sync_files([file for plan in plans for file in plan._open_all()])
            for directory in {path: None for plan in plans for path in plan._directories}:
                self._file_system.sync_directory(directory)
        except OSError as error:
            raise StorageError(self.log_directory, f"flush failed: {error}") from error


def run_together(plans: Sequence[FlushPlan]) -> None:
    """Run plans of one log directory, in the cheaper way. Raises StorageError."""
    if plans:
        plans[0].run_with(plans[1:])
