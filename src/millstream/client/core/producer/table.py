"""Encodes whole tables to batches before they are buffered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypedDict

import numpy as np
import pyarrow as pa

from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.core import ProducerCore
from millstream.client.core.producer.encoded import (
    EncodedBatch,
    batch_options,
    check_size,
    most_bytes,
)
from millstream.client.core.producer.partitioner import PartitionFunction
from millstream.model.topic import TopicPartition
from millstream.records.arrow_encoder import ArrowRows
from millstream.records.table_partitions import Int32s, KeyPartitioner, TablePartitioner
from millstream.records.tables import (
    ColumnChoice,
    Rows,
    TableColumns,
    TableRules,
    batches_from_table,
)


class ColumnChoices(TypedDict, total=False):
    """The mapping from columns to parts of a record; see ``TableColumns``."""

    key: ColumnChoice
    value: ColumnChoice
    headers: ColumnChoice
    timestamp: ColumnChoice
    partition: ColumnChoice


def table_batches(
    core: ProducerCore, topic: TopicBuffer, table: Rows, columns: ColumnChoices, now_ms: int
) -> Iterator[EncodedBatch]:
    """Yield the batches of a table for the partitions that a topic has now.

    Raises RecordTooLargeError for a row that could never be sent, TypeError and ValueError as in
    ``records.tables``.
    """
    most = most_bytes(core)
    rules = TableRules(
        partitions=len(topic.queues),
        now_ms=now_ms,
        partitioner=_partitioner(core, topic),
        options=batch_options(core),
        batch_bytes=min(core.settings.batch_size, most),
    )
    for each in batches_from_table(table, rules, TableColumns(**columns)):
        check_size(core, len(each.data), most)
        topic_partition = TopicPartition(topic.name, each.partition)
        yield EncodedBatch(topic_partition, each.data, each.count, core.loop.now_ms())


def _partitioner(core: ProducerCore, topic: TopicBuffer) -> TablePartitioner:
    count = len(topic.queues)
    if core.partitioner is not None:
        return _ByFunction(core.partitioner, topic.name, count)
    first = int(core.loop.random() * count)
    return KeyPartitioner(count, first=first, ignore_keys=core.keys is None)


class _ByFunction:
    """A user's function, called row by row."""

    def __init__(self, function: PartitionFunction, topic: str, partitions: int) -> None:
        self._function = function
        self._topic = topic
        self._partitions = partitions

    def __call__(self, rows: ArrowRows, *, batch_rows: int) -> Int32s:
        names, values = _cells(rows.key, rows.rows), _cells(rows.value, rows.rows)
        chosen = (
            self._function(self._topic, key, value, self._partitions)
            for key, value in zip(names, values, strict=True)
        )
        return np.fromiter(chosen, np.int32, rows.rows)


def _cells(column: pa.Array | None, rows: int) -> list[bytes | None]:
    if column is None:
        return [None] * rows
    cells: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return cells
