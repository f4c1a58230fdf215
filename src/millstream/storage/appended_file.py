"""A file that only grows, by whole lines, outside of the log directories: the audit log's."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence

from millstream import platform


class AppendedFile:
    """One file. It is opened for the first append, with permissions for its owner alone where it
    is new, and again after ``reopen``.

    The methods block; one thread calls them at a time. Processes may share a file: what one of them
    takes back after a failure is its own.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._is_torn = False
        """True when the file may end within a line that could not be taken back."""

    def reopen(self) -> None:
        """Have the next append open the path again: the file may have been moved away."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # It is closed then too. What a disk tells only now was counted as written.
            with contextlib.suppress(OSError):
                os.close(descriptor)

    close = reopen

    def append(self, lines: Sequence[bytes]) -> tuple[int, OSError | None]:
        """Write lines, each with its end; return how many are in the file, and what kept the others
        out of it.
        """
        try:
            size = self._open()
        except OSError as error:
            self.reopen()
            return 0, error
        try:
            return self._append(lines, size)
        finally:
            self._unlock()

    def _append(self, lines: Sequence[bytes], size: int | None) -> tuple[int, OSError | None]:
        view = memoryview(b"".join(lines))
        written = 0
        failure: OSError | None = None
        while written < len(view) and failure is None:
            try:
                written += os.write(self._descriptor, view[written:])
            except OSError as error:
                failure = error
        if failure is None:
            return len(lines), None
        count = whole = 0
        while whole + len(lines[count]) <= written:
            whole += len(lines[count])
            count += 1
        if size is not None and whole < written:
            try:
                os.ftruncate(self._descriptor, size + whole)
            except OSError:
                self._is_torn = True
        self.reopen()
        return count, failure

    def _unlock(self) -> None:
        if self._descriptor >= 0:  # the end of a descriptor is that of its lock
            with contextlib.suppress(OSError):
                platform.unlock_file(self._descriptor)

    def _open(self) -> int | None:
        """Open the file where it is not, and lock it; return its size, None where it has none."""
        if self._descriptor < 0:
            # A pipe that nobody reads must not hold the thread.
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._descriptor = os.open(self._path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(self._descriptor).st_mode):
            return None
        with contextlib.suppress(OSError):  # a file system without locks
            platform.lock_file(self._descriptor)
        status = os.fstat(self._descriptor)
        size = status.st_size
        if size and (self._is_torn or os.pread(self._descriptor, 1, size - 1) != b"\n"):
            # What a kill or a failed disk has left of a line is a line of its own.
            size += os.write(self._descriptor, b"\n")
        self._is_torn = False
        return size
