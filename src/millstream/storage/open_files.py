"""A limit on open files: the one opened longest ago is closed, and opened again when needed.

It has a lock because logs share it while several threads load or copy them.
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import Final, Protocol

DEFAULT_LIMIT: Final = 512
_LET_GO_AT_ONCE: Final = 16


class FileOwner(Protocol):
    """Holds one open file that it can open again."""

    def release(self) -> None:
        """Drop the file. It closes once no slice and no flush refers to it."""


class OpenFiles:
    """The owners that hold a file at the moment, at most ``limit`` of them, oldest first."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        assert limit > 0
        self.limit = limit
        self._owners: dict[FileOwner, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._owners)

    def opened(self, owner: FileOwner) -> None:
        """Record that ``owner`` has opened its file; another owner's file may have to be closed."""
        with self._lock:
            self._owners[owner] = None
            while len(self._owners) > self.limit:
                oldest = next(iter(self._owners))
                del self._owners[oldest]
                oldest.release()

    def make_room(self) -> bool:
        """Close some files because the process has no descriptor left; False if none is open."""
        with self._lock:
            oldest = list(islice(self._owners, _LET_GO_AT_ONCE))
            for owner in oldest:
                del self._owners[owner]
                owner.release()
        return bool(oldest)

    def closed(self, owner: FileOwner) -> None:
        """Record that ``owner`` has closed its file."""
        with self._lock:
            self._owners.pop(owner, None)
