"""The fetch buffer: bytes of batches, with what is needed to decode them.

The client's loop appends, and ``delivery`` takes from the other end, perhaps on another thread: a
deque's ends are safe to use so, and nothing else is shared.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.core.consumer.subscription import PartitionState
from millstream.model.offsets import NO_LEADER_EPOCH, LeaderEpoch, Offset
from millstream.model.topic import TopicPartition
from millstream.records.batch import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC

_BATCH_HEADER: Final = struct.Struct(">qiib6xi")
"""Base offset, batch length, leader epoch, magic and last offset delta of a batch's header."""


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """The data of one partition in one response.

    ``data`` is whole batches and perhaps the beginning of one more; the first may start before
    ``fetch_offset``. ``aborted`` lists the aborted transactions (producer id, first offset) for
    read_committed. The next fetch begins at ``next_offset``.
    """

    state: PartitionState
    fence: int
    data: memoryview
    fetch_offset: Offset
    next_offset: Offset
    last_epoch: LeaderEpoch
    """The leader epoch of the last batch."""
    aborted: Sequence[tuple[int, Offset]] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the batches."""
        return self.state.topic_partition

    @property
    def is_current(self) -> bool:
        """False once a seek, a reset or a revocation has invalidated these bytes."""
        return self.fence == self.state.fence


class FetchBuffer:
    """A queue of :class:`Fetched`; ``on_taken`` is called when there is room again."""

    def __init__(self) -> None:
        self._queue: deque[Fetched] = deque()
        self.on_taken: Callable[[Fetched], None] = lambda fetched: None

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, fetched: Fetched) -> None:
        """Append a fetch."""
        self._queue.append(fetched)

    def take(self) -> Fetched | None:
        """Remove and return the first fetch that is still current; None if there is none."""
        while self._queue:
            fetched = self._queue.popleft()
            self.on_taken(fetched)
            if fetched.is_current:
                return fetched
        return None

    def clear(self) -> None:
        """Drop everything."""
        self._queue.clear()


def end_of_batches(data: memoryview) -> tuple[Offset, LeaderEpoch] | None:
    """Return the offset after the last whole batch and its leader epoch; None without any."""
    position = 0
    end = len(data)
    found = None
    while end - position >= HEADER_SIZE:
        base_offset, length, epoch, magic, last_delta = _BATCH_HEADER.unpack_from(data, position)
        size = length + LENGTH_OVERHEAD
        if magic != MAGIC:
            # Not a format that this client reads: the reader raises the error, at this offset.
            return found or (base_offset + 1, NO_LEADER_EPOCH)
        if size < HEADER_SIZE or position + size > end:
            break
        found = (base_offset + last_delta + 1, epoch)
        position += size
    return found
