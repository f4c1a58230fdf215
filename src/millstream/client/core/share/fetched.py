"""The buffer of acquired records, as bytes: the loop appends, the user's side takes.

A deque's ends are safe to use from two threads, and nothing else is shared but the number of a
session, which is only read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from millstream.client.core.share.acknowledgements import Source
from millstream.client.core.share.session import ShareSession
from millstream.model.offsets import Offset


class AcquiredRange(NamedTuple):
    """Acquired offsets ``first`` to ``last``; 1 is the first delivery."""

    first: Offset
    last: Offset
    delivery_count: int


@dataclass(frozen=True, slots=True, eq=False)
class ShareFetched:
    """The data of one partition in one answer, and which of its offsets are acquired.

    ``data`` is whole batches, which may hold more than is acquired. ``lock_until_ms`` is when the
    acquisition ends, on the loop's clock.
    """

    source: Source
    session: ShareSession
    data: memoryview
    acquired: tuple[AcquiredRange, ...]
    lock_until_ms: float

    def is_acquired(self, now_ms: float) -> bool:
        """Return False once the broker has given up the acquisition: others may get the records."""
        return self.source.session_number == self.session.number and now_ms < self.lock_until_ms


class ShareBuffer:
    """A queue of :class:`ShareFetched`."""

    def __init__(self) -> None:
        self._queue: deque[ShareFetched] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, fetched: ShareFetched) -> None:
        """Append the data of one partition."""
        self._queue.append(fetched)

    def take(self) -> ShareFetched | None:
        """Remove and return the first, None if there is none."""
        return self._queue.popleft() if self._queue else None

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()
