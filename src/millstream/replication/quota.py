"""A limit on bytes per second, for replicas that catch up. Pure.

Bytes are counted in samples of one window each. The rate is the sum of all samples over the
time since the oldest began, taken as one window at least; a sample counts until ``windows`` windows
have passed since its last byte. While the limit is exceeded the caller fetches nothing and checks
again later; responses already in flight may exceed it, and later windows compensate.

So a limit holds on average, but a limit far below the size of one fetch does not hold: a fetch of
1 MB is forgotten after 11 windows of a second. Kafka: ``ReplicationQuotaManager``, ``SimpleRate``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

UNLIMITED: Final = 2**63 - 1
"""No limit (Kafka: ``QUOTA_BYTES_PER_SECOND_DEFAULT``)."""

ALL_REPLICAS: Final = "*"


class _Sample:
    """The bytes of one window; times are monotonic milliseconds."""

    __slots__ = ("began_ms", "bytes", "last_ms")

    def __init__(self, now_ms: float) -> None:
        self.began_ms = now_ms
        self.last_ms = now_ms
        self.bytes = 0


class ReplicationQuota:
    """Counts bytes and compares their recent rate with a limit."""

    __slots__ = ("_samples", "_window_ms", "_windows")

    def __init__(self, *, windows: int, window_ms: float) -> None:
        self._windows = windows
        self._window_ms = window_ms
        # One more than ``windows``: the oldest may have begun before the measured period.
        self._samples: deque[_Sample] = deque(maxlen=windows + 1)

    def record(self, count: int, now_ms: float) -> None:
        """Count bytes transferred now, regardless of the limit."""
        samples = self._samples
        if not samples or now_ms - samples[-1].began_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
        samples[-1].bytes += count
        samples[-1].last_ms = now_ms

    def bytes_per_second(self, now_ms: float) -> float:
        """Return the recent rate."""
        total, elapsed_ms = self._measure(now_ms)
        return total * 1000 / elapsed_ms

    def is_exceeded(self, limit: int, now_ms: float) -> bool:
        """Tell whether the recent rate is above ``limit`` bytes per second."""
        return limit < UNLIMITED and self.bytes_per_second(now_ms) > limit

    def exceeded_for_ms(self, limit: int, now_ms: float) -> float:
        """Return after how long the caller should check again: at most one window, because a sample
        may expire and the limit may change; 0 if the limit is not exceeded.
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

    ``texts`` are ``*`` alone, or ``partition:broker`` each, as the setting's validator accepts
    them.
    """
    found = set()
    for text in texts:
        if text == ALL_REPLICAS:
            return None
        partition, _, broker = text.partition(":")
        if int(broker) == broker_id:
            found.add(int(partition))
    return frozenset(found)
