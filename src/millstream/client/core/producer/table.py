"""Whole tables on their way: batches that are bytes before they wait, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.batch import ProducerBatch, RecordMetadata
from millstream.client.core.producer.core import ProducerCore
from millstream.client.core.producer.partitioner import PartitionFunction
from millstream.client.errors import RecordTooLargeError
from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.model.topic import TopicPartition
from millstream.records.arrow_encoder import ArrowRows
from millstream.records.builder import BatchOptions
from millstream.records.table_partitions import Int32s, KeyPartitioner, TablePartitioner
from millstream.records.tables import Rows, TableColumns, TableRules, batches_from_table

_SHARE_OF_MEMORY: Final = 4
"""At least so many batches of a table fit into ``buffer.memory``."""


class EncodedBatch(ProducerBatch):
    """Records of one partition that were encoded when they were handed over."""

    __slots__ = ("_count",)

    def __init__(
        self, place: TopicPartition, data: memoryview, count: int, created_ms: float
    ) -> None:
        super().__init__(place, 0, created_ms)
        self.data = data
        self.is_closed = True
        self._count = count

    @property
    def count(self) -> int:
        """Records."""
        return self._count

    def metadata(self, index: int) -> RecordMetadata:
        """Return where a delivered record lies; its timestamp is not told."""
        if self.places is not None:
            return self.places[index]
        offset = self.base_offset if self.base_offset < 0 else self.base_offset + index
        return RecordMetadata(self.place.topic, self.place.partition, offset, NO_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets that rows of a table got; ``base_offset`` is −1 when the broker did not tell."""

    partition: int
    base_offset: Offset
    count: int


class TableMetadata(NamedTuple):
    """Where the rows of a table lie, by partition in the order in which they were sent."""

    rows: int
    ranges: tuple[OffsetRange, ...]


class TableOutcome:
    """Collects the outcomes of a table's batches; ``on_done`` is called when all are known.

    Batches are handed over on one thread and end on another; neither waits for the other.
    """

    def __init__(self, on_done: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self.failed_rows = 0
        self._on_done = on_done
        self._rows = 0
        self._handed = 0
        self._ended = 0
        self._is_complete = False
        self._ranges: dict[int, list[OffsetRange]] = {}

    @property
    def is_done(self) -> bool:
        """True once every batch has an outcome."""
        return self._is_complete and self._ended == self._handed

    def expect(self, batch: ProducerBatch) -> None:
        """Count a batch that is about to be handed over."""
        self._handed += 1
        batch.watchers.append(partial(self._end, batch))

    def complete(self) -> None:
        """All batches were handed over."""
        self._is_complete = True
        if self.is_done:
            self._on_done()

    def metadata(self) -> TableMetadata:
        """Return where the rows lie; raises the first error when some were not delivered."""
        if self.error is not None:
            self.error.add_note(
                f"{self.failed_rows} rows of the table were not delivered, {self._rows} were"
            )
            raise self.error
        ranges = (each for _, places in sorted(self._ranges.items()) for each in places)
        return TableMetadata(self._rows, tuple(ranges))

    def _end(self, batch: ProducerBatch) -> None:
        failed = batch.count
        if batch.places is not None:
            for place in batch.places.values():
                self._add(place.partition, place.offset, 1)
            failed -= len(batch.places)
        elif batch.error is None:
            self._add(batch.place.partition, batch.base_offset, batch.count)
            failed = 0
        if batch.error is not None:
            self.error = self.error or batch.error
            self.failed_rows += failed
        self._ended += 1
        if self.is_done:
            self._on_done()

    def _add(self, partition: int, base_offset: Offset, count: int) -> None:
        self._rows += count
        ranges = self._ranges.setdefault(partition, [])
        last = ranges[-1] if ranges else None
        if last is not None and (last.base_offset + last.count == base_offset or base_offset < 0):
            ranges[-1] = replace(last, count=last.count + count)
        else:
            ranges.append(OffsetRange(partition, base_offset, count))


def table_batches(
    core: ProducerCore, topic: TopicBuffer, table: Rows, columns: TableColumns, now_ms: int
) -> Iterator[EncodedBatch]:
    """Yield the batches of a table for the partitions that a topic has now.

    Raises RecordTooLargeError for a row that could never be sent, TypeError and ValueError for
    columns as ``records.tables`` says.
    """
    settings = core.settings
    most = min(settings.max_request_size, settings.buffer_memory // _SHARE_OF_MEMORY)
    rules = TableRules(
        partitions=len(topic.queues),
        now_ms=now_ms,
        partitioner=_partitioner(core, topic),
        options=BatchOptions(
            codec=settings.compression_type, level=core.sender.compression_level()
        ),
        batch_bytes=min(settings.batch_size, most),
    )
    for each in batches_from_table(table, rules, columns):
        if len(each.data) > most:
            raise RecordTooLargeError(
                f"a row takes {len(each.data)} bytes; max.request.size is "
                f"{settings.max_request_size}, buffer.memory {settings.buffer_memory}"
            )
        place = TopicPartition(topic.name, each.partition)
        yield EncodedBatch(place, each.data, each.count, core.loop.now_ms())


def _partitioner(core: ProducerCore, topic: TopicBuffer) -> TablePartitioner:
    count = len(topic.queues)
    if core.partitioner is not None:
        return _ByFunction(core.partitioner, topic.name, count)
    first = int(core.loop.random() * count)
    return KeyPartitioner(count, first=first, ignore_keys=core.keys is None)


class _ByFunction:
    """A function of the user's, asked row by row."""

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
