"""Decodes batches to records: CRC, aborted transactions, decoding, deserializers."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar, cast

from millstream.client.core.consumer.errors import (
    CorruptRecordError,
    RecordDeserializationError,
    RecordError,
)
from millstream.client.core.consumer.fetched import Fetched
from millstream.client.core.consumer.record import ConsumerRecord
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.model.errors import CorruptLogError, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch, iter_batches
from millstream.records.isolation import CommittedOnly
from millstream.records.record import Record, iter_records
from millstream.records.rows import RecordShape, decode_batches

K = TypeVar("K")
V = TypeVar("V")

_new_record = partial(tuple.__new__, ConsumerRecord)
"""Creates a ``ConsumerRecord`` from its columns, without calling a Python function."""

Deserializer: TypeAlias = Callable[[str, bytes], object]
"""Converts bytes of a key or value of a topic; not called for null."""


@dataclass(frozen=True, slots=True, eq=False)
class ReadRecords(Generic[K, V]):
    """The records of one fetch; ``error`` ended the reading after them."""

    records: list[ConsumerRecord[K, V]]
    error: RecordError | None = None


class RecordReader(Generic[K, V]):
    """Decodes fetches according to a consumer's settings."""

    def __init__(
        self,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        check_crcs: bool = True,
    ) -> None:
        self._key = key_deserializer
        self._value = value_deserializer
        self._check_crcs = check_crcs

    @classmethod
    def of(cls, settings: ConsumerSettings) -> RecordReader[K, V]:
        """Return the reader for a consumer's settings."""
        return cls(
            key_deserializer=cast("Deserializer | None", settings.key_deserializer),
            value_deserializer=cast("Deserializer | None", settings.value_deserializer),
            check_crcs=settings.check_crcs,
        )

    def read(self, fetched: Fetched) -> ReadRecords[K, V]:
        """Return the records from ``fetch_offset`` on, as far as they can be read."""
        # Thousands of records are created at once and all of them stay alive: a garbage collection
        # meanwhile would take longer than creating them.
        collecting = gc.isenabled()
        gc.disable()
        try:
            return ReadRecords(self._read_at_once(fetched))
        except Exception:
            # There is an error: decode again, up to it.
            return self._read_singly(fetched)
        finally:
            if collecting:
                gc.enable()

    def _read_at_once(self, fetched: Fetched) -> list[ConsumerRecord[K, V]]:
        batches = list(iter_batches(fetched.data))
        if self._check_crcs:
            for batch in batches:
                batch.ensure_valid()
        batches = list(filter(_holds_records(fetched), batches))
        topic_partition = fetched.topic_partition
        shape = RecordShape(ConsumerRecord, topic_partition.topic, topic_partition.partition)
        records = decode_batches(batches, shape, start_offset=fetched.fetch_offset)
        if self._key is None and self._value is None:
            return records
        return [self._deserialized(record) for record in records]

    def _deserialized(self, record: ConsumerRecord[bytes, bytes]) -> ConsumerRecord[K, V]:
        topic, partition, offset, timestamp, kind, key, value, headers, epoch = record
        return _new_record(
            (
                topic,
                partition,
                offset,
                timestamp,
                kind,
                key if key is None or self._key is None else self._key(topic, key),
                value if value is None or self._value is None else self._value(topic, value),
                headers,
                epoch,
            )
        )

    def _read_singly(self, fetched: Fetched) -> ReadRecords[K, V]:
        records: list[ConsumerRecord[K, V]] = []
        topic_partition = fetched.topic_partition
        reached = fetched.fetch_offset
        try:
            holds_records = _holds_records(fetched)
            for batch in iter_batches(fetched.data):
                try:
                    # Of every batch: damage may make a batch look as if it had nothing to read.
                    if self._check_crcs:
                        batch.ensure_valid()
                    if holds_records(batch):
                        self._read_batch(batch, fetched, records)
                except RecordError as error:
                    return ReadRecords(records, error)
                except (MillstreamError, ValueError) as error:
                    end = _end_of(batch, fetched)
                    damaged = _damaged(topic_partition, max(batch.base_offset, reached), error, end)
                    return ReadRecords(records, damaged)
                reached = max(reached, batch.next_offset)
        except (CorruptLogError, KafkaError) as error:
            return ReadRecords(records, _damaged(topic_partition, reached, error, None))
        return ReadRecords(records)

    def _read_batch(
        self, batch: Batch, fetched: Fetched, records: list[ConsumerRecord[K, V]]
    ) -> None:
        topic_partition = fetched.topic_partition
        first = fetched.fetch_offset
        for record in iter_records(batch):
            if record.offset >= first:
                records.append(self._make(topic_partition, record, batch))

    def _make(
        self, topic_partition: TopicPartition, record: Record, batch: Batch
    ) -> ConsumerRecord[K, V]:
        key: object = record.key
        value: object = record.value
        part = "key"
        try:
            if self._key is not None and record.key is not None:
                key = self._key(topic_partition.topic, record.key)
            part = "value"
            if self._value is not None and record.value is not None:
                value = self._value(topic_partition.topic, record.value)
        except Exception as error:
            failure = RecordDeserializationError(topic_partition, record.offset, part, error)
            failure.__cause__ = error
            raise failure from error
        return ConsumerRecord(
            topic_partition.topic,
            topic_partition.partition,
            record.offset,
            record.timestamp,
            batch.timestamp_type,
            cast("K | None", key),
            cast("V | None", value),
            record.headers,
            batch.partition_leader_epoch,
        )


def _holds_records(fetched: Fetched) -> Callable[[Batch], bool]:
    """Return the filter that tells of each batch, in order, whether it has visible records."""
    keep = CommittedOnly(fetched.aborted) if fetched.aborted else None

    def holds_records(batch: Batch) -> bool:
        if keep is not None and not keep(batch):
            return False
        return bool(
            batch.count and not batch.is_control and batch.next_offset > fetched.fetch_offset
        )

    return holds_records


def _end_of(damaged: Batch, fetched: Fetched) -> Offset | None:
    """Return the offset after a damaged batch, None if unknown: its own header may be damaged."""
    if damaged.is_valid:
        return damaged.next_offset
    with contextlib.suppress(MillstreamError):
        for batch in iter_batches(fetched.data):
            if batch.base_offset > damaged.base_offset:
                return batch.base_offset
    return damaged.next_offset if damaged.next_offset <= fetched.state.high_watermark else None


def _damaged(
    topic_partition: TopicPartition, offset: Offset, cause: Exception, next_offset: Offset | None
) -> CorruptRecordError:
    failure = CorruptRecordError(topic_partition, offset, str(cause), next_offset=next_offset)
    failure.__cause__ = cause
    return failure
