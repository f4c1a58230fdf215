"""Metrics of the replicas of this broker: topics, partitions, replication.

Everything is read from the logs and roles as they are at a scrape; nothing is counted where records
are appended. A counter of a topic is the sum of what its logs have grown by since the scrape
before, for the role that they have now.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from millstream.model.broker import BrokerId
from millstream.model.topic import TopicPartition
from millstream.runtime.metadata.metadata_cache import MetadataCache
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions
from millstream.server.metrics import catalogue
from millstream.server.metrics.families import Family, gauge
from millstream.storage.log import Log

Part = Iterator[Family | None]
"""Families as they are ready, and None where others may be served."""

PARTITIONS_AT_ONCE: Final = 100
"""Replicas that are looked at before the loop serves others: about half a millisecond."""


@dataclass(slots=True)
class _Seen:
    """How far a log had come at the scrape before."""

    log: Log
    appended_bytes: int
    end_offset: int


@dataclass(slots=True)
class _Topic:
    """What the replicas of a topic add up to."""

    size: int = 0
    segments: int = 0
    lso_lag: int = 0
    is_led: bool = False


@dataclass(slots=True)
class _Replication:
    """What the replicas of the broker add up to."""

    partitions: int = 0
    leaders: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    lags: dict[BrokerId, int] = field(default_factory=dict)


class LogMetrics:
    """Looks at every replica of a broker."""

    def __init__(self, partitions: Partitions, metadata: MetadataCache) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._seen: dict[TopicPartition, _Seen] = {}
        self._is_first = True
        self._bytes_in: dict[str, int] = {}
        self._records_in: dict[str, int] = {}
        self._replicated_in: dict[str, int] = {}

    def collect(self, *, by_partition: bool) -> Part:
        """Yield the families of topics, partitions and replication."""
        topics: dict[str, _Topic] = {}
        found = _Replication()
        each_partition = [Family(metric) for metric in _OF_PARTITIONS] if by_partition else None
        seen: dict[TopicPartition, _Seen] = {}
        for count, partition in enumerate(self._partitions, start=1):
            if partition.is_gone:
                continue
            topic = topics.setdefault(partition.topic_partition.topic, _Topic())
            seen[partition.topic_partition] = self._look(partition, topic)
            _add_replication(found, partition)
            if each_partition is not None:
                _add_partition(each_partition, partition)
            if count % PARTITIONS_AT_ONCE == 0:
                yield None
        self._seen = seen
        self._is_first = False
        self._forget_deleted()
        yield from self._of_topics(topics)
        yield from each_partition or ()
        yield from self._of_replication(found)

    def _look(self, partition: Partition, topic: _Topic) -> _Seen:
        log, name = partition.log, partition.topic_partition.topic
        is_led = partition.following is None
        segments = log.local.segments
        now = _Seen(log, segments.appended_bytes, log.log_end_offset)
        before = self._seen.get(partition.topic_partition)
        if before is None or before.log is not log:
            start = now.end_offset if self._is_first else log.log_start_offset
            before = _Seen(log, 0, start)
        grown = max(0, now.appended_bytes - before.appended_bytes)
        if is_led:
            self._bytes_in[name] = self._bytes_in.get(name, 0) + grown
            records = max(0, now.end_offset - before.end_offset)
            self._records_in[name] = self._records_in.get(name, 0) + records
            topic.is_led = True
            topic.lso_lag = max(topic.lso_lag, log.high_watermark - log.last_stable_offset)
        else:
            self._replicated_in[name] = self._replicated_in.get(name, 0) + grown
        topic.size += segments.size
        topic.segments += len(segments)
        return now

    def _forget_deleted(self) -> None:
        for totals in (self._bytes_in, self._records_in, self._replicated_in):
            for name in [name for name in totals if self._metadata.topic(name) is None]:
                del totals[name]

    def _of_topics(self, topics: dict[str, _Topic]) -> Part:
        for metric, totals in (
            (catalogue.TOPIC_BYTES_IN, self._bytes_in),
            (catalogue.TOPIC_RECORDS_IN, self._records_in),
            (catalogue.TOPIC_REPLICATION_IN, self._replicated_in),
        ):
            family = Family(metric)
            for name, total in totals.items():
                family.add(total, name)
            yield family
        sizes, segments, lags = (
            Family(catalogue.TOPIC_SIZE),
            Family(catalogue.TOPIC_SEGMENTS),
            Family(catalogue.TOPIC_LSO_LAG),
        )
        for name, topic in topics.items():
            sizes.add(topic.size, name)
            segments.add(topic.segments, name)
            if topic.is_led:
                lags.add(topic.lso_lag, name)
        yield from (sizes, segments, lags)

    def _of_replication(self, found: _Replication) -> Part:
        partitions = self._partitions
        yield gauge(catalogue.PARTITIONS, found.partitions)
        yield gauge(catalogue.LEADERS, found.leaders)
        yield gauge(catalogue.UNDER_REPLICATED, found.under_replicated)
        yield gauge(catalogue.UNDER_MIN_ISR, found.under_min_isr)
        yield gauge(catalogue.AT_MIN_ISR, found.at_min_isr)
        yield gauge(catalogue.REASSIGNING, found.reassigning)
        yield gauge(catalogue.OFFLINE_REPLICAS, len(partitions.offline))
        lags = Family(catalogue.REPLICA_LAG)
        for broker_id, lag in sorted(found.lags.items()):
            lags.add(lag, str(broker_id))
        yield lags
        context = None if partitions.replicas is None else partitions.replicas.context
        yield gauge(catalogue.ISR_SHRINKS, 0 if context is None else context.isr_shrinks)
        yield gauge(catalogue.ISR_EXPANDS, 0 if context is None else context.isr_expands)
        yield gauge(catalogue.ELECTIONS, partitions.elections)
        yield gauge(catalogue.UNCLEAN_ELECTIONS, partitions.unclean_elections)


def _add_replication(found: _Replication, partition: Partition) -> None:
    found.partitions += 1
    if partition.following is not None:
        return
    found.leaders += 1
    leading = partition.leading
    if leading is None:
        return
    state = leading.machine.state
    in_sync, replicas = len(state.isr), len(state.replicas) - len(state.adding_replicas)
    found.reassigning += bool(state.adding_replicas or state.removing_replicas)
    is_short = in_sync < replicas
    found.under_replicated += is_short
    if leading.is_under_min_isr:
        found.under_min_isr += 1
    elif is_short and in_sync == leading.machine.effective_min_isr:
        found.at_min_isr += 1
    end = partition.log.log_end_offset
    for broker_id, progress in leading.machine.progress.items():
        lag = max(0, end - progress.log_end_offset) if progress.has_fetched else end
        found.lags[broker_id] = max(found.lags.get(broker_id, 0), lag)


_OF_PARTITIONS: Final = (
    catalogue.PARTITION_START,
    catalogue.PARTITION_END,
    catalogue.PARTITION_HIGH_WATERMARK,
    catalogue.PARTITION_SIZE,
    catalogue.PARTITION_IN_SYNC,
)


def _add_partition(families: list[Family], partition: Partition) -> None:
    name, index = partition.topic_partition.topic, str(partition.topic_partition.partition)
    log = partition.log
    starts, ends, high_watermarks, sizes, in_sync = families
    starts.add(log.log_start_offset, name, index)
    ends.add(log.log_end_offset, name, index)
    high_watermarks.add(log.high_watermark, name, index)
    sizes.add(log.size, name, index)
    if partition.following is None:
        leading = partition.leading
        in_sync.add(1 if leading is None else len(leading.machine.state.isr), name, index)
