"""The metrics of a consumer, under the names of Kafka's Java client.

Groups as there: ``consumer-fetch-manager-metrics`` and ``consumer-coordinator-metrics``; Kafka's
documentation describes them. Rates are since the creation of the consumer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from millstream.client.core.consumer.subscription import PartitionState, Subscription
from millstream.client.core.loop import ClientLoop

FETCH_GROUP: Final = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-coordinator-metrics"
CONSUMER_GROUP: Final = "consumer-metrics"


@dataclass(slots=True)
class Latency:
    """How often something was measured, the sum and the largest, in milliseconds."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, elapsed_ms: float) -> None:
        """Take one measurement."""
        self.count += 1
        self.total_ms += elapsed_ms
        self.max_ms = max(self.max_ms, elapsed_ms)

    def values(self, name: str) -> dict[str, float]:
        """Return the average and the largest under Kafka's names."""
        average = self.total_ms / self.count if self.count else 0.0
        return {f"{name}-avg": average, f"{name}-max": self.max_ms}


class FetchMetrics:
    """The metrics of the fetcher."""

    def __init__(self, loop: ClientLoop) -> None:
        self._loop = loop
        self._began_ms = loop.now_ms()
        self.bytes_consumed = 0
        self.records_consumed = 0
        self.largest_fetch = 0
        self.fetches = Latency()
        self.throttle = Latency()

    def on_answer(self, elapsed_ms: float, throttle_ms: float) -> None:
        """Count one answer."""
        self.fetches.add(elapsed_ms)
        self.throttle.add(throttle_ms)

    def on_fetched(self, state: PartitionState, size: int) -> None:
        """Count the bytes of one partition in one answer."""
        self.bytes_consumed += size
        self.largest_fetch = max(self.largest_fetch, size)

    def values(self, subscription: Subscription) -> dict[str, float]:
        """Return everything, with the lag of the partition that is furthest behind."""
        seconds = max((self._loop.now_ms() - self._began_ms) / 1000, 0.001)
        lags = [
            lag
            for lag in (lag_of(state) for state in subscription.partitions.values())
            if lag is not None
        ]
        count = self.fetches.count
        return {
            "bytes-consumed-total": self.bytes_consumed,
            "bytes-consumed-rate": self.bytes_consumed / seconds,
            "records-consumed-total": self.records_consumed,
            "records-consumed-rate": self.records_consumed / seconds,
            "records-per-request-avg": self.records_consumed / count if count else 0.0,
            "fetch-size-avg": self.bytes_consumed / count if count else 0.0,
            "fetch-size-max": self.largest_fetch,
            "fetch-total": count,
            "fetch-rate": count / seconds,
            "records-lag-max": max(lags, default=0),
            **self.fetches.values("fetch-latency"),
            **self.throttle.values("fetch-throttle-time"),
        }


def lag_of(state: PartitionState, *, read_committed: bool = False) -> int | None:
    """Return the number of offsets between the position and the end; None while it is unknown."""
    end = state.last_stable_offset if read_committed else state.high_watermark
    return None if end < 0 or not state.has_position else max(end - state.position, 0)


class CoordinatorMetrics:
    """The metrics of the membership and of commits."""

    def __init__(self, loop: ClientLoop) -> None:
        self._loop = loop
        self._began_ms = loop.now_ms()
        self.joins = Latency()
        self.syncs = Latency()
        self.heartbeats = Latency()
        self.commits = Latency()
        self.rebalances = Latency()
        self.failed_rebalances = 0
        self.last_heartbeat_ms: float | None = None
        self.last_rebalance_ms: float | None = None

    def values(self, assigned: int) -> dict[str, float]:
        """Return everything; ``assigned`` is how many partitions the consumer has."""
        now = self._loop.now_ms()
        hours = max((now - self._began_ms) / 3_600_000, 1e-9)

        def ago(when_ms: float | None) -> float:
            return -1.0 if when_ms is None else (now - when_ms) / 1000

        return {
            "assigned-partitions": assigned,
            "join-total": self.joins.count,
            "sync-total": self.syncs.count,
            "heartbeat-total": self.heartbeats.count,
            "commit-total": self.commits.count,
            "rebalance-total": self.rebalances.count,
            "rebalance-rate-per-hour": self.rebalances.count / hours,
            "failed-rebalance-total": self.failed_rebalances,
            "rebalance-latency-total": self.rebalances.total_ms,
            "last-heartbeat-seconds-ago": ago(self.last_heartbeat_ms),
            "last-rebalance-seconds-ago": ago(self.last_rebalance_ms),
            "heartbeat-response-time-max": self.heartbeats.max_ms,
            **self.joins.values("join-time"),
            **self.syncs.values("sync-time"),
            **self.commits.values("commit-latency"),
            **self.rebalances.values("rebalance-latency"),
        }
