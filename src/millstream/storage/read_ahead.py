"""What a look-up needs from a disk before it can go on: gathered on the thread that owns the log,
brought in on any other.

A log is read on the thread that owns it, and records leave by sendfile on that thread, too. Both
are quick while the system has the bytes in memory, as it has the newest ones. A reader far behind
asks for bytes that may have to come from the disk: they are brought in first, elsewhere.

A look-up that would wait raises :class:`ColdReadError`; the log turns that into a
:class:`ReadAhead`. The caller runs it on another thread and asks again. Two kinds of work may be in
it:

``ranges``        bytes that have to be in the page cache
``preparations``  work that takes long even when the bytes are there: an index that is held against
                  its log or made anew. A preparation works on file objects of its own and keeps its
                  outcome; the owner of the log takes that over when it asks again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from millstream.model.errors import CorruptLogError, MillstreamError, StorageError
from millstream.storage.files import File


class FileRange(NamedTuple):
    """``size`` bytes of an open file."""

    file: File
    position: int
    size: int


class Preparation(ABC):
    """Work for a look-up that any thread may do; it changes nothing that the log's owner uses.

    What it finds wrong is kept for the owner, who raises it for the partition that it concerns.
    """

    __slots__ = ("failure", "is_done", "missing")

    def __init__(self) -> None:
        self.is_done = False
        self.failure: CorruptLogError | None = None
        self.missing: FileNotFoundError | None = None
        """A file that was not there: as a rule, the segment was renamed or deleted meanwhile."""

    def run(self) -> None:
        """Do the work unless it is done. Raises OSError."""
        if self.is_done:
            return
        self.missing = None
        try:
            self.prepare()
        except FileNotFoundError as error:
            self.missing = error
            return
        except CorruptLogError as error:
            self.failure = error
        self.is_done = True

    def run_here(self) -> None:
        """Do the work on the thread that owns the log, which is the one that renames its files: a
        file that it does not find is gone for good. Raises OSError.
        """
        self.run()
        if self.missing is not None:
            raise self.missing

    @abstractmethod
    def prepare(self) -> None:
        """Do the work. Raises CorruptLogError and OSError."""


class ColdReadError(MillstreamError):
    """A look-up was not to wait for a disk, and would have had to. Kept inside this package."""

    def __init__(
        self, ranges: Sequence[FileRange] = (), preparations: Sequence[Preparation] = ()
    ) -> None:
        super().__init__("it is not in memory")
        self.ranges = ranges
        self.preparations = preparations


class ReadAhead:
    """What one look-up in one log waits for. It holds the files of its ranges, so it can run while
    the log goes on, or is deleted.
    """

    __slots__ = ("log_directory", "preparations", "ranges")

    def __init__(self, log_directory: str, cold: ColdReadError) -> None:
        self.log_directory = log_directory
        self.ranges = cold.ranges
        self.preparations = cold.preparations

    @property
    def size(self) -> int:
        """How many bytes of ``ranges`` are to be read."""
        return sum(each.size for each in self.ranges)

    def run(self) -> None:
        """Do everything, and wait for the disk. Any thread. Raises StorageError."""
        try:
            for file, position, size in self.ranges:
                file.read_ahead(position, size)
            for preparation in self.preparations:
                preparation.run()
        except OSError as error:
            raise StorageError(self.log_directory, f"reading failed: {error}") from error
