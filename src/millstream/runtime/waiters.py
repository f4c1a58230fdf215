"""Requests that wait for a partition: writes for their commit, reads for data.

Kafka keeps such operations in a purgatory keyed by partition; here each partition holds its own.
A :class:`CommitWaiters` is filled in offset order and released from its head, so releasing costs
nothing per waiter that stays. A :class:`FetchWaiter` stands at every partition that its fetch
names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from millstream.model.clock import Clock, TimerHandle
from millstream.model.errors import KafkaError
from millstream.model.offsets import Offset

if TYPE_CHECKING:
    from millstream.runtime.partition import Partition

CommitCallback = Callable[[KafkaError | None], None]


class CommitWaiters:
    """Writes of one partition that are not committed yet."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[Offset, CommitCallback]] = deque()

    def add(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back once the high watermark passes ``last_offset``, or with an error."""
        self._queue.append((last_offset, callback))

    def release(self, high_watermark: Offset) -> None:
        """Answer every write below the high watermark.

        A duplicate waits for an offset below the write in front of it; it is answered no later than
        that one, which is when its own offset is committed too.
        """
        queue = self._queue
        while queue and queue[0][0] < high_watermark:
            queue.popleft()[1](None)

    def fail(self, error: KafkaError) -> None:
        """Answer every write with ``error``: the leadership, the disk or the topic is gone."""
        queue, self._queue = self._queue, deque()
        for _, callback in queue:
            callback(error)


class FetchWaiter:
    """A fetch that found fewer bytes than it asked for (Kafka: ``DelayedFetch``).

    It is run again by ``retry`` once ``missing_bytes`` more can be read, when something about a
    partition changes, or when its time is up; then exactly once.
    """

    __slots__ = ("_clock", "_done", "_missing_bytes", "_partitions", "_retry", "_timer")

    def __init__(
        self,
        clock: Clock,
        *,
        partitions: Iterable[Partition],
        missing_bytes: int,
        wait_ms: float,
        retry: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._partitions = tuple(partitions)
        self._missing_bytes = missing_bytes
        self._retry = retry
        self._done = False
        for partition in self._partitions:
            partition.fetch_waiters[self] = None
        self._timer: TimerHandle = clock.call_later(wait_ms, self.wake)

    def data_arrived(self, size: int) -> None:
        """Count bytes that became readable."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self.wake()

    def wake(self) -> None:
        """Leave every partition and run the fetch again after what runs now.

        Not at once: the append that woke it may be one of several in the same read of a socket.
        """
        if self._done:
            return
        self._done = True
        self._timer.cancel()
        for partition in self._partitions:
            partition.fetch_waiters.pop(self, None)
        self._clock.call_soon(self._retry)
