"""The lock of a log directory: one process at a time writes there, be it Millstream or Kafka."""

from __future__ import annotations

import errno
import os
from typing import ClassVar

from millstream import platform


class LocalLock:
    """A POSIX record lock, the kind that Java takes, so Kafka and Millstream exclude each other.

    Such a lock belongs to the process and goes when *any* descriptor of the file is closed. So
    a file that this process has locked is not opened again.
    """

    _held: ClassVar[dict[str, int]] = {}
    """The descriptors by their paths."""

    def __init__(self, path: str) -> None:
        self._path = os.path.realpath(path)
        if self._path in self._held:
            raise BlockingIOError(errno.EAGAIN, "locked by this process", path)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            platform.lock_records(self._descriptor)
        except OSError:
            os.close(self._descriptor)
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path) from None
        self._held[self._path] = self._descriptor

    def release(self) -> None:
        """Release the lock."""
        self._held.pop(self._path, None)
        os.close(self._descriptor)

    @classmethod
    def descriptor_in(cls, directory: str) -> int | None:
        """Return the descriptor of a lock that is held in a directory; None if there is none."""
        real = os.path.realpath(directory)
        held = (each for path, each in tuple(cls._held.items()) if os.path.dirname(path) == real)
        return next(held, None)


def lock_holder(path: str) -> int | None:
    """Return the id of the process that holds the lock on a file, None if it is not locked.

    This only queries: nothing is created, written or locked, so another process can take the lock
    meanwhile. Also None where the system does not support the query.
    """
    if os.path.realpath(path) in LocalLock._held:
        return os.getpid()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return platform.record_lock_holder(descriptor)
    finally:
        os.close(descriptor)
