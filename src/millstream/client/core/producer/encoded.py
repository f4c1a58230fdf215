"""Batches that are encoded before they are buffered: whole tables, and lists of values."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from millstream.client.core.producer.accumulator import TopicBuffer
from millstream.client.core.producer.batch import ProducerBatch, RecordMetadata
from millstream.client.core.producer.core import ProducerCore
from millstream.client.errors import RecordTooLargeError
from millstream.model.offsets import NO_TIMESTAMP, Offset
from millstream.model.topic import TopicPartition
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchOptions
from millstream.records.rows import encode_rows

_SHARE_OF_MEMORY: Final = 4
"""At least so many encoded batches fit into ``buffer.memory``."""

_VALUE_OVERHEAD_BYTES: Final = 17
"""The largest size of the numbers of a record with a value and the first one's timestamp."""


class EncodedBatch(ProducerBatch):
    """Records of one partition that were encoded when they were sent."""

    __slots__ = ("_count",)

    def __init__(
        self, topic_partition: TopicPartition, data: memoryview, count: int, created_ms: float
    ) -> None:
        super().__init__(topic_partition, 0, created_ms)
        self.data = data
        self.is_closed = True
        self._count = count

    @property
    def count(self) -> int:
        """Records."""
        return self._count

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of a delivered record, without its timestamp."""
        if self.record_metadata is not None:
            return self.record_metadata[index]
        offset = self.base_offset if self.base_offset < 0 else self.base_offset + index
        return RecordMetadata(
            self.topic_partition.topic, self.topic_partition.partition, offset, NO_TIMESTAMP
        )


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of rows; ``base_offset`` is −1 if the broker did not return it."""

    partition: int
    base_offset: Offset
    count: int


class RowsMetadata(NamedTuple):
    """The offsets of rows, by partition, in the order in which they were sent."""

    rows: int
    ranges: tuple[OffsetRange, ...]


class RowsOutcome:
    """Collects the outcomes of batches; ``on_done`` is called when all are known.

    Batches are added on one thread and complete on another; neither blocks the other.
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
        """Count a batch that is about to be appended."""
        self._handed += 1
        batch.watchers.append(partial(self._end, batch))

    def complete(self) -> None:
        """Record that all batches were appended."""
        self._is_complete = True
        if self.is_done:
            self._on_done()

    def metadata(self) -> RowsMetadata:
        """Return the rows' metadata; raises the first error if some were not delivered."""
        if self.error is not None:
            error = _copied(self.error)
            error.add_note(f"{self.failed_rows} rows were not delivered, {self._rows} were")
            raise error
        ranges = (each for _, found in sorted(self._ranges.items()) for each in found)
        return RowsMetadata(self._rows, tuple(ranges))

    def _end(self, batch: ProducerBatch) -> None:
        failed = batch.count
        if batch.record_metadata is not None:
            for metadata in batch.record_metadata.values():
                self._add(metadata.partition, metadata.offset, 1)
            failed -= len(batch.record_metadata)
        elif batch.error is None:
            self._add(batch.topic_partition.partition, batch.base_offset, batch.count)
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


def _copied(error: Exception) -> Exception:
    """Return a copy of the error: several batches may share one, and it may be raised
    repeatedly.
    """
    kind = type(error)
    copy = kind.__new__(kind, *error.args)
    copy.__dict__.update({**error.__dict__, "__notes__": list(getattr(error, "__notes__", ()))})
    copy.__cause__ = error.__cause__
    return copy


def values_batches(
    core: ProducerCore,
    topic: TopicBuffer,
    values: Sequence[bytes],
    partition: int | None,
    timestamp_ms: int,
) -> Iterator[EncodedBatch]:
    """Yield batches of values, in order; without a partition each goes to the next one.

    BrokerError for a partition that is not there, RecordTooLargeError for a value that could never
    be sent.
    """
    chosen = int(core.loop.random() * len(topic.queues)) if partition is None else partition
    most, options = most_bytes(core), batch_options(core)
    room = min(core.settings.batch_size, most) - HEADER_SIZE
    ends = _ends(values) if _most_size(values) > room else []
    start = 0
    while start < len(values):
        stop = len(values)
        if ends:
            stop = max(bisect_right(ends, ends[start] + room) - 1, start + 1)
        count = stop - start
        piece = values if count == len(values) else values[start:stop]
        data = memoryview(
            encode_rows(array("q", [timestamp_ms]) * count, None, piece, options=options)
        )
        check_size(core, len(data), most)
        queue = core.plan(topic, None, None, chosen)
        yield EncodedBatch(queue.topic_partition, data, count, core.loop.now_ms())
        if partition is None:
            chosen = (chosen + 1) % len(topic.queues)
        start = stop


def _most_size(values: Sequence[bytes]) -> int:
    return sum(map(len, values)) + _VALUE_OVERHEAD_BYTES * len(values)


def _ends(values: Sequence[bytes]) -> list[int]:
    """Return upper bounds of the positions at which records begin, and of the end of the last
    one.
    """
    sizes = map(_VALUE_OVERHEAD_BYTES.__add__, map(len, values))
    return list(accumulate(sizes, initial=0))


def most_bytes(core: ProducerCore) -> int:
    """Return the size limit of one encoded batch."""
    settings = core.settings
    return min(settings.max_request_size, settings.buffer_memory // _SHARE_OF_MEMORY)


def check_size(core: ProducerCore, size: int, most: int) -> None:
    """Raise RecordTooLargeError for a batch, of one row then, that could never be sent."""
    if size > most:
        raise RecordTooLargeError(
            f"a row takes {size} bytes; max.request.size is "
            f"{core.settings.max_request_size}, buffer.memory {core.settings.buffer_memory}"
        )


def batch_options(core: ProducerCore) -> BatchOptions:
    """Return the header fields of encoded batches.

    With idempotence a batch gets its sequence and its CRC when it is sent.
    """
    return BatchOptions(
        codec=core.settings.compression_type,
        level=core.sender.compression_level(),
        has_crc=core.sender.sequences is None,
        is_transactional=core.settings.transactional_id is not None,
    )
