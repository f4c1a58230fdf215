"""A limit on bytes per second, for replicas that catch up. Pure.

What passes is counted in samples of one window each. The rate is the sum of all samples over the
time since the oldest began, taken as one window at least; a sample counts until ``windows`` windows
have passed since its last byte. Whoever finds the limit exceeded moves nothing and asks again
later; what was on its way already may go over it, and later seconds make up for that.

So a limit holds on average, and a limit far below what is moved at once does not hold: a fetch of
1 MB is forgotten after 11 windows of a second. Kafka: ``ReplicationQuotaManager``, ``SimpleRate``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

UNLIMITED: Final = 2**63 - 1
"""The limit that is none (Kafka: ``QUOTA_BYTES_PER_SECOND_DEFAULT``)."""

ALL_REPLICAS: Final = "*"


class _Sample:
    """What passed in one window; times are monotonic milliseconds."""

    __slots__ = ("began_ms", "bytes", "last_ms")

    def __init__(self, now_ms: float) -> None:
        self.began_ms = now_ms
        self.last_ms = now_ms
        self.bytes = 0


class ReplicationQuota:
    """Counts bytes and tells whether there were too many of late."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, *, windows: int, window_ms: float) -> None:
        self._windows = windows
        self._window_ms = window_ms
        # One more than counts: the oldest may have begun before the time that is looked at.
        self._samples: deque[_Sample] = deque(maxlen=windows + 1)

    def record(self, count: int, now_ms: float) -> None:
        """Count bytes that pass now, whatever the limit says."""
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
        samples[-1].bytes += count
        samples[-1].last_ms = now_ms

    def bytes_per_second(self, now_ms: float) -> float:
        """Return the rate of what passed of late."""
        total, elapsed_ms = self._measure(now_ms)
        return total * 1000 / elapsed_ms

    def is_exceeded(self, limit: int, now_ms: float) -> bool:
        """Tell whether more than ``limit`` bytes per second passed of late."""
        return limit < UNLIMITED and self.bytes_per_second(now_ms) > limit

    def exceeded_for_ms(self, limit: int, now_ms: float) -> float:
        """Return after how long it is worth asking again: at most one window, for a sample may end
        and the limit may change; 0 when the limit is not exceeded.
        """
        if not self.is_exceeded(limit, now_ms):
            return 0.0
        if limit == 0:
            return self._window_ms
        total, elapsed_ms = self._measure(now_ms)
        return min(self._window_ms, total * 1000 / limit - elapsed_ms)

    def _measure(self, now_ms: float) -> tuple[int, float]:
        samples = self._samples
        horizon_ms = self._windows * self._window_ms
        while samples and now_ms - samples[0].last_ms >= horizon_ms:
            samples.popleft()
        if not samples:
            return 0, self._window_ms
        elapsed_ms = max(self._window_ms, now_ms - samples[0].began_ms)
        return sum(each.bytes for each in samples), elapsed_ms


def throttled_partitions(texts: Iterable[str], broker_id: int) -> frozenset[int] | None:
    """Read ``leader.`` or ``follower.replication.throttled.replicas`` of a topic: the partitions
    whose replica on this broker is named, None where all are (``*``).

    ``texts`` are ``*`` alone, or ``partition:broker`` each, as the setting's validator lets them
    through.
    """
    found = set()
    for text in texts:
        if text == ALL_REPLICAS:
            return None
        partition, _, broker = text.partition(":")
        if int(broker) == broker_id:
            found.add(int(partition))
    return frozenset(found)
