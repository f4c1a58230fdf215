"""The metrics of a producer, under the names of Kafka's Java client.

Group ``producer-metrics``, and ``producer-topic-metrics`` per topic; Kafka's documentation
describes them. Rates and averages are since the creation of the producer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.core.producer.accumulator import RecordAccumulator
from millstream.client.core.producer.batch import ProducerBatch

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"


@dataclass(slots=True)
class Measured:
    """How often something was measured, the sum and the largest."""

    count: int = 0
    total: float = 0.0
    largest: float = 0.0

    def add(self, value: float) -> None:
        """Take one measurement."""
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)

    def values(self, name: str) -> dict[str, float]:
        """Return the average and the largest under Kafka's names."""
        average = self.total / self.count if self.count else 0.0
        return {f"{name}-avg": average, f"{name}-max": self.largest}


@dataclass(slots=True)
class TopicCounts:
    """The counters of one topic."""

    records: int = 0
    bytes: int = 0
    uncompressed_bytes: int = 0
    retries: int = 0
    errors: int = 0


class ProducerMetrics:
    """All counters of one producer."""

    def __init__(self, now_ms: Callable[[], float], accumulator: RecordAccumulator) -> None:
        self._now_ms = now_ms
        self._accumulator = accumulator
        self._began_ms = now_ms()
        self._topics: dict[str, TopicCounts] = {}
        self._batches = Measured()
        self._queued = Measured()
        self._latency = Measured()
        self._throttle = Measured()
        self._per_request = Measured()
        self._splits = 0
        self._in_flight = 0
        self.blocked_ms = 0.0
        """The time for which callers have waited for memory."""
        self.exhausted = 0
        """Records refused because no memory came free in time."""
        self.metadata_waited_ms = 0.0
        self.flushed_ms = 0.0

    def _topic(self, batch: ProducerBatch) -> TopicCounts:
        name = batch.topic_partition.topic
        counts = self._topics.get(name)
        if counts is None:
            counts = self._topics[name] = TopicCounts()
        return counts

    def batch_encoded(self, batch: ProducerBatch, uncompressed_bytes: int) -> None:
        """A batch became bytes."""
        counts = self._topic(batch)
        counts.records += batch.count
        counts.bytes += batch.size
        counts.uncompressed_bytes += uncompressed_bytes
        self._batches.add(batch.size)
        self._queued.add(self._now_ms() - batch.created_ms)

    def request_sent(self, batches: Sequence[ProducerBatch]) -> None:
        """A request left."""
        self._in_flight += 1
        self._per_request.add(sum(batch.count for batch in batches))

    def request_ended(self, elapsed_ms: float) -> None:
        """A request was answered or failed."""
        self._in_flight -= 1
        self._latency.add(elapsed_ms)

    def throttled(self, throttle_ms: float) -> None:
        """A broker asked for a pause."""
        self._throttle.add(throttle_ms)

    def retried(self, batch: ProducerBatch) -> None:
        """A batch is sent again."""
        self._topic(batch).retries += batch.count

    def failed(self, batch: ProducerBatch) -> None:
        """A batch failed for good."""
        self._topic(batch).errors += batch.count

    def split(self) -> None:
        """A batch was too large."""
        self._splits += 1

    def values(self) -> dict[tuple[str, str], float]:
        """Return everything by group and name; a topic's names begin with the topic."""
        seconds = max((self._now_ms() - self._began_ms) / 1000, 0.001)
        total = TopicCounts()
        result: dict[tuple[str, str], float] = {}
        for topic, counts in list(self._topics.items()):
            for name, value in _values(counts, seconds).items():
                result[TOPIC_GROUP, f"{topic}.{name}"] = value
            total.records += counts.records
            total.bytes += counts.bytes
            total.uncompressed_bytes += counts.uncompressed_bytes
            total.retries += counts.retries
            total.errors += counts.errors
        everything = {**_values(total, seconds), **self._own_values(total, seconds)}
        return {**result, **{(GROUP, name): value for name, value in everything.items()}}

    def _own_values(self, total: TopicCounts, seconds: float) -> dict[str, float]:
        accumulator = self._accumulator
        requests = self._per_request
        return {
            "record-size-avg": total.uncompressed_bytes / total.records if total.records else 0.0,
            "records-per-request-avg": requests.total / requests.count if requests.count else 0.0,
            "request-total": requests.count,
            "request-rate": requests.count / seconds,
            "requests-in-flight": self._in_flight,
            "batch-split-total": self._splits,
            "batch-split-rate": self._splits / seconds,
            "waiting-threads": accumulator.waiting,
            "buffer-total-bytes": accumulator.held_bytes + accumulator.free_bytes,
            "buffer-available-bytes": accumulator.free_bytes,
            "buffer-exhausted-total": self.exhausted,
            "buffer-exhausted-rate": self.exhausted / seconds,
            "bufferpool-wait-time-ns-total": self.blocked_ms * 1e6,
            "metadata-wait-time-ns-total": self.metadata_waited_ms * 1e6,
            "flush-time-ns-total": self.flushed_ms * 1e6,
            **self._batches.values("batch-size"),
            **self._queued.values("record-queue-time"),
            **self._latency.values("request-latency"),
            **self._throttle.values("produce-throttle-time"),
        }


def _values(counts: TopicCounts, seconds: float) -> dict[str, float]:
    raw = counts.uncompressed_bytes
    return {
        "record-send-total": counts.records,
        "record-send-rate": counts.records / seconds,
        "byte-total": counts.bytes,
        "byte-rate": counts.bytes / seconds,
        "compression-rate": counts.bytes / raw if raw else 1.0,
        "record-retry-total": counts.retries,
        "record-retry-rate": counts.retries / seconds,
        "record-error-total": counts.errors,
        "record-error-rate": counts.errors / seconds,
    }
