"""What a look-up needs from a disk before it can continue: collected on the thread that owns the
log, read on any other.

A log is read on the thread that owns it, and records leave by sendfile on that thread, too. Both
are fast while the bytes are in the page cache, as the newest ones are. The bytes for a reader far
behind may have to come from the disk: another thread reads them first.

A look-up that would block raises :class:`ColdReadError`; the log turns that into a
:class:`ReadAhead`. The caller runs it on another thread and repeats the look-up. It contains two
kinds of work:

``ranges``        bytes that have to be in the page cache
``preparations``  work that takes long even when the bytes are cached: an index is checked against
                  its log or rebuilt. A preparation uses its own file objects and keeps
                  its result; the owner of the log uses it when it repeats the look-up.
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

    An error is kept for the owner, which raises it for the partition concerned.
    """

    __slots__ = ("failure", "is_done", "missing")

    def __init__(self) -> None:
        self.is_done = False
        self.failure: CorruptLogError | None = None
        self.missing: FileNotFoundError | None = None
        """The error for a missing file: usually the segment was renamed or deleted meanwhile."""

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
        """Do the work on the thread that owns the log. Only this thread renames its files, so a
        file that is missing now was deleted. Raises OSError.
        """
        self.run()
        if self.missing is not None:
            raise self.missing

    @abstractmethod
    def prepare(self) -> None:
        """Do the work. Raises CorruptLogError and OSError."""


class ColdReadError(MillstreamError):
    """A look-up that must not block on the disk would have to. Raised and caught inside this
    package.
    """

    def __init__(
        self, ranges: Sequence[FileRange] = (), preparations: Sequence[Preparation] = ()
    ) -> None:
        super().__init__("it is not in memory")
        self.ranges = ranges
        self.preparations = preparations


class ReadAhead:
    """The work that one look-up in one log waits for. It holds the files of its ranges, so it can
    run while the log is appended to or deleted.
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
        """Do all of the work, blocking on the disk. Any thread. Raises StorageError."""
        try:
            for file, position, size in self.ranges:
                file.read_ahead(position, size)
            for preparation in self.preparations:
                preparation.run()
        except OSError as error:
            raise StorageError(self.log_directory, f"reading failed: {error}") from error
