"""A batch from ``send`` to its broker, and the outcomes of its records.

::

    OPEN --full, drained--> ENCODED --answer--> DONE (base offset, or an error)
                               ^--------- retried

While it is open it is lists of keys and values. Once drained it is bytes alone: a retry sends the
same bytes, and new sequences are written into the header.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from millstream.client.errors import TimedOutError
from millstream.model.offsets import NO_OFFSET, NO_TIMESTAMP, Offset
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from millstream.model.topic import TopicPartition
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    PRODUCER_ID_POSITION,
)
from millstream.records.builder import BatchOptions
from millstream.records.compression import Codec
from millstream.records.crc32c import checksum
from millstream.records.record import Header
from millstream.records.rows import encode_rows

RECORD_OVERHEAD_BYTES: Final = 21
"""Most that the numbers of a record without headers take (Kafka: ``DefaultRecord``)."""

HELD_BYTES: Final = 96
"""The memory of a buffered record besides its bytes: its objects and list entries."""


class RecordMetadata(NamedTuple):
    """The metadata of a delivered record; ``offset`` is −1 with ``acks=0`` and if the broker does
    not know it any more.
    """

    topic: str
    partition: int
    offset: Offset
    timestamp_ms: int


DeliveryCallback = Callable[[RecordMetadata | None, Exception | None], None]
"""Called with the record's metadata, or with None and the error."""


class Identity(NamedTuple):
    """The producer id, epoch and sequence of a batch, to detect duplicates (KIP-98)."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_IDENTITY: Final = Identity()


class ProducerBatch:
    """Records of one partition."""

    __slots__ = (
        "attempts",
        "base_offset",
        "callbacks",
        "created_ms",
        "data",
        "done",
        "error",
        "headers",
        "held_bytes",
        "identity",
        "in_network",
        "is_acknowledged",
        "is_ambiguous",
        "is_closed",
        "is_plain",
        "keys",
        "last_error",
        "limit",
        "log_append_time_ms",
        "record_errors",
        "record_metadata",
        "retry_at_ms",
        "room",
        "stamps",
        "timestamps",
        "topic_partition",
        "tried_leader",
        "values",
        "watchers",
    )

    def __init__(self, topic_partition: TopicPartition, room: int, created_ms: float) -> None:
        self.topic_partition = topic_partition
        self.created_ms = created_ms
        self.limit = room
        self.room = room
        """Bytes that may still be appended."""
        self.held_bytes = 0
        """The batch's share of ``buffer.memory``."""
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.keys: list[bytes | None] | None = None
        self.headers: list[Sequence[Header]] | None = None
        self.callbacks: list[tuple[int, DeliveryCallback]] | None = None
        self.watchers: list[Callable[[], None]] = []
        self.is_closed = False
        self.is_plain = True
        """True while no record has a key, headers or a callback."""
        self.data: bytearray | memoryview | None = None
        self.stamps: array[int] | None = None
        self.identity = NO_IDENTITY
        self.attempts = 0
        self.last_error: Exception | None = None
        """Why the attempt before ended, when it is tried again."""
        self.in_network = False
        self.is_acknowledged = False
        self.is_ambiguous = False
        """True if an attempt ended without a response: the broker may have the batch."""
        self.retry_at_ms = 0.0
        self.tried_leader = -1
        self.done = False
        self.error: Exception | None = None
        self.record_errors: Mapping[int, Exception] = {}
        self.record_metadata: Mapping[int, RecordMetadata] | None = None
        """The offsets of the records of a split batch, if they are not consecutive."""
        self.base_offset: Offset = NO_OFFSET
        self.log_append_time_ms = NO_TIMESTAMP

    @property
    def count(self) -> int:
        """Records."""
        return len(self.values) if self.stamps is None else len(self.stamps)

    @property
    def has_sequence(self) -> bool:
        """True once the batch has an identity."""
        return self.identity.base_sequence >= 0

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        callback: DeliveryCallback | None,
    ) -> int:
        """Add a record and return its index; the caller keeps the accounts."""
        index = len(self.values)
        self.values.append(value)
        self.timestamps.append(timestamp_ms)
        if key is None and callback is None and self.is_plain and not headers:
            return index
        self.is_plain = False
        if self.keys is not None:
            self.keys.append(key)
        elif key is not None:
            self.keys = [None] * index
            self.keys.append(key)
        if self.headers is not None:
            self.headers.append(headers)
        elif headers:
            self.headers = [()] * index
            self.headers.append(headers)
        if callback is not None:
            if self.callbacks is None:
                self.callbacks = []
            self.callbacks.append((index, callback))
        return index

    def encode(self, codec: Codec, level: int | None, *, is_transactional: bool = False) -> None:
        """Encode the records with the batch's identity, and release them."""
        assert self.data is None, "a batch is encoded once"
        identity = self.identity
        self.data = encode_rows(
            self.timestamps,
            self.keys,
            self.values,
            self.headers,
            options=BatchOptions(
                codec=codec,
                level=level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=identity.base_sequence,
                is_transactional=is_transactional,
            ),
        )
        self.stamps = array("q", self.timestamps)
        self.values, self.timestamps, self.keys, self.headers = [], [], None, None

    def identify(self, identity: Identity) -> None:
        """Set the identity of the batch; in an encoded batch the header is rewritten."""
        self.identity = identity
        if self.data is None:
            return
        # An unsent request may reference the old bytes; before the first attempt there is none.
        data = bytearray(self.data) if self.attempts else self.data
        data[PRODUCER_ID_POSITION : PRODUCER_ID_POSITION + 14] = (
            identity.producer_id.to_bytes(8, "big", signed=True)
            + identity.epoch.to_bytes(2, "big", signed=True)
            + identity.base_sequence.to_bytes(4, "big", signed=True)
        )
        crc = checksum(memoryview(data)[ATTRIBUTES_POSITION:])
        data[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
        self.data = data

    @property
    def size(self) -> int:
        """Bytes of the encoded batch; of an open one its largest uncompressed size."""
        return HEADER_SIZE + self.limit - self.room if self.data is None else len(self.data)

    # --- outcome ---------------------------------------------------------------------------------

    def succeed(self, base_offset: Offset, log_append_time_ms: int) -> None:
        """Complete it: the broker has it."""
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.done = True

    def fail(self, error: Exception, record_errors: Mapping[int, Exception] | None = None) -> None:
        """Fail it: it is not retried; ``record_errors`` has the invalid records (KIP-467)."""
        self.error = error
        self.record_errors = record_errors or {}
        self.done = True

    def error_of(self, index: int) -> Exception | None:
        """Return the error of a record, None if it was delivered."""
        if self.error is None:
            return None
        return self.record_errors.get(index, self.error if self.record_metadata is None else None)

    def metadata(self, index: int) -> RecordMetadata:
        """Return the metadata of a delivered record."""
        if self.record_metadata is not None:
            return self.record_metadata[index]
        offset = NO_OFFSET if self.base_offset < 0 else self.base_offset + index
        timestamp = self.log_append_time_ms
        if timestamp == NO_TIMESTAMP:
            timestamp = self.timestamps[index] if self.stamps is None else self.stamps[index]
        return RecordMetadata(
            self.topic_partition.topic, self.topic_partition.partition, offset, timestamp
        )


def expired(batch: ProducerBatch, limit_ms: float, where: str) -> TimedOutError:
    """Return the error of a batch that was not delivered in time; ``where`` is about brokers."""
    one = batch.count == 1
    return TimedOutError(
        f"{batch.count} record{'' if one else 's'} for {batch.topic_partition} "
        f"{'was' if one else 'were'} not delivered within {limit_ms:.0f} ms (delivery.timeout.ms), "
        f"after {batch.attempts} attempt{'' if batch.attempts == 1 else 's'}{reason_of(batch)} "
        f"({where})"
    )


def reason_of(batch: ProducerBatch) -> str:
    """Return how the last attempt to deliver it ended, to be appended to a sentence."""
    return "" if batch.last_error is None else f": the last ended with {batch.last_error}"


class Delivery:
    """The outcome of one record; each API adds its own way to wait."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        """True once the outcome is known."""
        return self._batch.done

    def _outcome(self) -> RecordMetadata:
        error = self._batch.error_of(self._index)
        if error is not None:
            raise error
        return self._batch.metadata(self._index)
