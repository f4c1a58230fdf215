"""What has to be flushed: collected on the owner's thread, flushed on any thread.

A plan holds the open files, so it can run while the log goes on, rolls, or is deleted. It reads and
changes no state of the log; the owner calls ``Durability.flushed`` afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.errors import StorageError
from millstream.model.offsets import Offset
from millstream.platform import FLUSHES_FILES_ONLY
from millstream.storage.checkpoint_claims import CheckpointClaims
from millstream.storage.files import File, FileSystem

if TYPE_CHECKING:
    from millstream.storage.durability import Durability

MANY_FLUSHES: Final = 8
"""From so many on, one flush of the whole volume is faster than a flush of each, side by side."""


@dataclass(slots=True, kw_only=True, eq=False)
class FlushPlan:
    """Flushes of one log: its segments' files, small files by path, then directories; at last the
    checkpoints, where the log was cut below what they say.
    """

    file_system: FileSystem
    durability: Durability
    """The log's durability, to be notified once the plan has run."""
    log_directory: str
    recovery_point: Offset
    """All below is on disk once the plan has run."""
    cuts: int
    """How often the log had been cut when the plan was made."""
    notes: Mapping[str, int]
    """The noted names that the plan flushes."""
    files: Sequence[File]
    paths: Sequence[str]
    directories: Sequence[str]
    claims: CheckpointClaims | None = None
    """The claims whose checkpoints may have to be lowered; None if the log was not cut."""
    failure: OSError | None = None
    """The error raised while the plan was made, if any."""
    may_flush_volume: bool = True
    """False if the plan must not wait for the rest of the volume."""

    @property
    def settles(self) -> bool:
        """True when the log may be appended to again once the plan has run."""
        return self.claims is not None

    def run(self) -> None:
        """Flush everything. Raises StorageError, which is final for the log directory."""
        self.run_with(())

    def _open_all(self) -> list[File]:
        files = list(self.files)
        for path in self.paths:
            # A file that does not exist any more was deleted and needs no flush.
            with contextlib.suppress(FileNotFoundError):
                files.append(self.file_system.open(path))
        return files

    @property
    def count(self) -> int:
        """How many flushes the plan takes."""
        return len(self.files) + len(self.paths) + len(self.directories)

    def run_with(self, others: Sequence[FlushPlan]) -> None:
        """Run this plan and those of other logs in the same log directory, by whichever kind of
        flush is cheaper.

        Raises StorageError, which is final for the log directory.
        """
        plans = (self, *others)
        try:
            for plan in plans:
                if plan.failure is not None:
                    raise plan.failure
            self._flush(plans)
            for plan in plans:
                if plan.claims is not None:
                    plan.claims.settle()
        except OSError as error:
            raise StorageError(self.log_directory, f"flush failed: {error}") from error

    def _flush(self, plans: Sequence[FlushPlan]) -> None:
        may_flush_volume = all(plan.may_flush_volume for plan in plans)
        if FLUSHES_FILES_ONLY:
            may_flush_volume = False
        if may_flush_volume and sum(plan.count for plan in plans) >= MANY_FLUSHES:
            self.file_system.sync_all(self.log_directory)
            return
        self.file_system.sync_files([file for plan in plans for file in plan._open_all()])
        for directory in {path: None for plan in plans for path in plan.directories}:
            self.file_system.sync_directory(directory)


def run_together(plans: Sequence[FlushPlan]) -> None:
    """Run plans of one log directory, by whichever kind of flush is cheaper. Raises
    StorageError.
    """
    if plans:
        plans[0].run_with(plans[1:])
