"""The lag of a table behind its topics, in offsets, rows and seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse import ledger as ledgers
from millstream.spark.lakehouse.formats.format import TIMESTAMP
from millstream.spark.lakehouse.ledger import Ledger
from millstream.spark.lakehouse.table import Table
from millstream.spark.options import SourceOptions
from millstream.spark.ranges import OffsetRange
from millstream.spark.reader import ReadRules, read_range
from millstream.spark.topics import open_topics

_COUNTED_OFFSETS: Final = 50_000
"""Up to this many offsets rows are counted; beyond, each offset counts as a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of one partition."""

    topic_partition: TopicPartition
    position: Offset
    end: Offset
    rows: int
    is_exact: bool
    """False if the rows were not counted because there are too many."""
    seconds: float
    """Age of the oldest record that is not in the table; 0 when all are."""

    @property
    def offsets(self) -> int:
        """Offsets that the table lacks."""
        return max(self.end - self.position, 0)


def batch_lag(
    ranges: Sequence[OffsetRange],
    latest: Mapping[TopicPartition, Offset],
    reached_ms: Mapping[TopicPartition, int],
    now_s: float,
) -> float | None:
    """Return the lag of a table in seconds once a batch is in it: the age of the last record of the
    partition that is furthest back, among those of the batch that go on.

    ``latest`` are the ends of the topics. 0 when no partition of the batch goes on; None when no
    time of such a record is known.
    """
    behind = [e.topic_partition for e in ranges if e.end < latest.get(e.topic_partition, e.end)]
    if not behind:
        return 0.0
    times = [reached_ms[each] for each in behind if each in reached_ms]
    return max(now_s - min(times) / 1000, 0.0) if times else None


def table_lag(options: SourceOptions, table: Table, app_id: str) -> list[PartitionLag]:
    """Return the lag of every partition; ConfigError when no load of that name wrote the table."""
    return [
        _lag(options, topic_partition, position, end)
        for topic_partition, (position, end) in table_positions(options, table, app_id).items()
    ]


def table_positions(
    options: SourceOptions, table: Table, app_id: str
) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """Return for each partition how far the table is and where the topic ends; no record is read.

    ConfigError when no load of that name wrote the table.
    """
    with open_topics(options) as topics:
        topic_partitions = topics.topic_partitions(options.subscription)
        ledger = Ledger(table.ledger(app_id, ledgers.keys(topic_partitions)))
        if not ledger.batch:
            raise ConfigError(f"{table.name}: {ledgers.unknown_load(app_id)}")
        starts = topics.earliest(topic_partitions)
        committed = options.kafka.read_committed
        ends = topics.latest(topic_partitions, read_committed=committed)
        return {
            each: (max(ledger.position(each) or 0, starts[each]), ends[each])
            for each in topic_partitions
        }


def _lag(
    options: SourceOptions, topic_partition: TopicPartition, position: Offset, end: Offset
) -> PartitionLag:
    rows = 0
    oldest_ms: int | None = None
    counted_end = min(end, position + _COUNTED_OFFSETS)
    if counted_end > position:
        rules = ReadRules.of(options, fail_on_data_loss=False)
        schema = pa.schema([("timestamp", TIMESTAMP)])
        for batch in read_range(OffsetRange(topic_partition, position, counted_end), rules, schema):
            if oldest_ms is None and batch.num_rows:
                oldest_ms = batch.column(0).cast(pa.int64())[0].as_py() // 1000
            rows += batch.num_rows
    return PartitionLag(
        topic_partition=topic_partition,
        position=position,
        end=end,
        rows=rows + max(end - counted_end, 0),
        is_exact=counted_end >= end,
        seconds=0.0 if oldest_ms is None else max(time.time() - oldest_ms / 1000, 0.0),
    )
