"""What a read would wait for a disk for, gathered on the owner's thread and brought in on any.

A log is read on the thread that owns it, and records leave by sendfile on that thread, too. Both
are quick while the system has the bytes in memory, as it has the newest ones. A reader far behind
asks for bytes that may have to come from the disk: they are brought in first, elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from millstream.model.errors import MillstreamError, StorageError
from millstream.storage.files import File


class FileRange(NamedTuple):
    """``size`` bytes of an open file."""

    file: File
    position: int
    size: int


class ColdReadError(MillstreamError):
    """A look-up was not to wait for a disk, and would have had to. Kept inside this package."""

    def __init__(self, ranges: list[FileRange]) -> None:
        super().__init__("it is not in memory")
        self.ranges = ranges


class ReadAhead:
    """Pieces of one log's files that are not in memory. It holds the files, so it can run while the
    log goes on, or is deleted.
    """

    __slots__ = ("log_directory", "ranges")

    def __init__(self, log_directory: str, ranges: list[FileRange]) -> None:
        self.log_directory = log_directory
        self.ranges = ranges

    @property
    def size(self) -> int:
        """How many bytes are to be read."""
        return sum(each.size for each in self.ranges)

    def run(self) -> None:
        """Read everything, and wait for the disk. Raises StorageError."""
        try:
            for file, position, size in self.ranges:
                file.read_ahead(position, size)
        except OSError as error:
            raise StorageError(self.log_directory, f"reading failed: {error}") from error
