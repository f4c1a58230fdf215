"""Requests that wait for a partition: writes for their commit, reads for data.

Kafka keeps such operations in a purgatory keyed by partition; here each partition holds its own.
A :class:`CommitWaiters` is filled in offset order and released from its head, so releasing costs
nothing per waiter that stays. A :class:`FetchWaiter` stands at every partition that its fetch
names.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from millstream.model.clock import Clock, TimerHandle
from millstream.model.errors import KafkaError
from millstream.model.offsets import Offset

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition

log = logging.getLogger(__name__)

CommitCallback = Callable[[KafkaError | None], None]

_WAITING: Final = 0
_WOKEN: Final = 1
_DONE: Final = 2


class CommitWaiters:
    """Writes of one partition that are not committed yet."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: deque[tuple[Offset, CommitCallback]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back once the high watermark passes ``last_offset``, or with an error."""
        self._queue.append((last_offset, callback))

    def release(self, high_watermark: Offset) -> None:
        """Answer every write below the high watermark. A callback that raises is logged: neither
        the other writes nor whoever moved the high watermark notice.

        A duplicate waits for an offset below the write in front of it; it is answered no later than
        that one, which is when its own offset is committed too.
        """
        queue = self._queue
        while queue and queue[0][0] < high_watermark:
            tell(queue.popleft()[1], None)

    def fail(self, error: KafkaError) -> None:
        """Answer every write with ``error``: the leadership, the disk or the topic is gone."""
        queue, self._queue = self._queue, deque()
        for _, callback in queue:
            tell(callback, error)


def tell(callback: CommitCallback, error: KafkaError | None) -> None:
    """Call back; an exception is logged, for the caller's other work does not depend on it."""
    try:
        callback(error)
    except (
        Exception
    ):  # a fault of ours in one answer; whoever moved the log's end has no part in it
        log.exception("a write could not be answered")


class FetchWaiter:
    """A fetch that found fewer bytes than it asked for (Kafka: ``DelayedFetch``).

    It is told once, by ``on_woken``, that it should look again: with True when ``missing_bytes``
    more can be read, with False when something about a partition has changed or its time is up.
    """

    __slots__ = (
        "_clock",
        "_missing_bytes",
        "_of_replica",
        "_on_woken",
        "_parked",
        "_state",
        "_timer",
    )

    def __init__(
        self,
        clock: Clock,
        *,
        partitions: Iterable[Partition],
        missing_bytes: int,
        wait_ms: float,
        on_woken: Callable[[bool], None],
        of_replica: bool = False,
    ) -> None:
        self._clock = clock
        self._of_replica = of_replica
        self._parked: list[dict[FetchWaiter, None]] = []
        self._missing_bytes = missing_bytes
        self._on_woken = on_woken
        self._state = _WAITING
        self.watch(partitions)
        self._timer: TimerHandle = clock.call_later(wait_ms, self.wake)

    def watch(self, partitions: Iterable[Partition]) -> None:
        """Wait at more partitions; does nothing once it was woken."""
        if self._state != _WAITING:
            return
        for partition in partitions:
            # A follower waits for the log end, everybody else for the high watermark.
            waiters = partition.replica_waiters if self._of_replica else partition.fetch_waiters
            waiters[self] = None
            self._parked.append(waiters)

    def stand_at(self, waiters: dict[FetchWaiter, None]) -> None:
        """Wait at one place more, whose owner calls :meth:`wake`; nothing once it was woken."""
        if self._state == _WAITING:
            waiters[self] = None
            self._parked.append(waiters)

    def data_arrived(self, size: int) -> None:
        """Count bytes that became readable."""
        self._missing_bytes -= size
        if self._missing_bytes <= 0:
            self._leave(lambda: self._tell(True))

    def wake(self) -> None:
        """Let the fetch look again, whatever there is."""
        self._leave(lambda: self._tell(False))

    def cancel(self) -> None:
        """Leave every partition and tell nobody, also if it was about to be told."""
        if self._state == _WAITING:
            self._leave(None)
        self._state = _DONE

    def _leave(self, tell: Callable[[], None] | None) -> None:
        """Wait no more. What comes of it runs after what runs now: the append that woke a fetch
        may be one of several in the same read of a socket.
        """
        if self._state != _WAITING:
            return
        self._state = _WOKEN
        self._timer.cancel()
        for waiters in self._parked:
            waiters.pop(self, None)
        if tell is not None:
            self._clock.call_soon(tell)

    def _tell(self, data_arrived: bool) -> None:
        if self._state == _WOKEN:
            self._state = _DONE
            self._on_woken(data_arrived)
