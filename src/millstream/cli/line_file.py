"""A file of lines that may grow, be renamed or be truncated while it is read."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from millstream.cli.failures import CommandFailedError
from millstream.cli.ingest_batches import LONGEST_LINE_BYTES
from millstream.cli.ingest_files import Source, is_compressed
from millstream.cli.ingest_positions import Mark, Position
from millstream.platform import read_at

QUIET_S: Final = 30.0
"""A writer may go on for so long in a file that was renamed under it."""


class FileIdentity(NamedTuple):
    """Which file it is, whatever its name."""

    device: int
    inode: int


def identity_of(path: Path) -> FileIdentity:
    """Return which file is at a path now."""
    status = path.stat()
    return FileIdentity(status.st_dev, status.st_ino)


class Lines(NamedTuple):
    """Complete lines, without their line feeds."""

    lines: list[bytes]
    data: bytes
    """The bytes that they take in the file, with those before them."""
    before: bytes = b""
    """A line feed that belongs to a line which was handed over already."""


class TruncatedError(CommandFailedError):
    """What was read of a file is not in it any more."""


class LineFile:
    """The rest of a file, from the mark to which it was ingested."""

    def __init__(self, path: Path, position: Position, source: Source, mark: Mark) -> None:
        self.path = path
        self.position = position
        """What is committed of it."""
        self.mark = mark
        """Behind the last line that was handed over."""
        self._renamed_at: float | None = None
        self._source = source
        self._rest = b""
        self._descriptor = None if is_compressed(path) else _descriptor(source)
        self.status = path.stat() if self._descriptor is None else os.fstat(self._descriptor)

    @property
    def identity(self) -> FileIdentity:
        """Device and inode."""
        return FileIdentity(self.status.st_dev, self.status.st_ino)

    @property
    def can_grow(self) -> bool:
        """False for a compressed file: it is written once."""
        return self._descriptor is not None

    @property
    def size(self) -> int:
        """The bytes of the file that were read."""
        if self._descriptor is None:
            return self.status.st_size
        return self.mark.position + len(self._rest)

    @property
    def is_renamed(self) -> bool:
        """True if another file has its name, or will have."""
        return self._renamed_at is not None

    def note_rename(self) -> None:
        """Take note that it does not have its name any more; its writer may not know yet."""
        if self._renamed_at is None:
            self._renamed_at = time.monotonic()

    @property
    def is_quiet(self) -> bool:
        """True if nobody has written to the file for long, nor renamed it."""
        if self._descriptor is None:
            return True
        if self._renamed_at is not None and time.monotonic() - self._renamed_at < QUIET_S:
            return False
        return time.time() - os.fstat(self._descriptor).st_mtime > QUIET_S

    @property
    def is_within_a_line(self) -> bool:
        """True if the last line that was read has no line feed yet."""
        return bool(self._rest)

    def read(self, size: int) -> Lines | None:
        """Read on; None at the end. The mark does not move: :meth:`Mark.advance` is the caller's.

        TruncatedError if the file does not hold any more what was read of it before.
        """
        data = self._source.read(size)
        if self._descriptor is not None and not self._holds(self._descriptor):
            raise TruncatedError(f"{self.path} was truncated while it was read")
        if not data:
            return None
        before = b""
        if not self._rest and data[:1] == b"\n" and self._ends_within_a_line():
            # The line was complete but for its line feed, and was sent.
            before, data = data[:1], data[1:]
        whole = self._rest + data
        end = whole.rfind(b"\n") + 1
        self._rest = whole[end:]
        if len(self._rest) > LONGEST_LINE_BYTES:
            raise CommandFailedError(
                f"line {self.mark.line + 1:,} of {self.path} is longer than "
                f"{LONGEST_LINE_BYTES:,} bytes"
            )
        lines = whole[: end - 1].split(b"\n") if end else []
        return Lines(lines, before + whole[:end], before)

    def last_line(self) -> Lines:
        """Return what follows the last line feed, once nothing more will come."""
        rest, self._rest = self._rest, b""
        return Lines([rest] if rest else [], rest)

    def _ends_within_a_line(self) -> bool:
        return self.mark.position > 0 and not self.mark.tail.endswith(b"\n")

    def _holds(self, descriptor: int) -> bool:
        read = self.mark.position + len(self._rest)
        if os.fstat(descriptor).st_size < read:
            return False
        return read_at(descriptor, len(self.mark.head), 0) == self.mark.head

    def committed(self) -> Position:
        """Return the position to be committed."""
        return self.position.at(self.mark, self.path, self.status)

    def close(self) -> None:
        """Close the file."""
        self._source.close()


def _descriptor(source: Source) -> int:
    number = getattr(source, "fileno")()  # noqa: B009  (a plain file)
    assert isinstance(number, int)
    return number
