"""Builds version 2 batches from records."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.model.offsets import NO_LEADER_EPOCH, NO_TIMESTAMP, Offset
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from millstream.records.batch import (
    CHECKED_HEADER,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from millstream.records.compression import Codec, compress
from millstream.records.crc32c import Buffer, checksum
from millstream.records.record import Header, Record, wrap64
from millstream.records.varint import encode_varint

_FRONT: Final = struct.Struct(">qiibI")
"""Base offset, length, leader epoch, magic, CRC: what stands before the part that it covers."""
_NULL: Final = encode_varint(-1)
_NO_HEADERS: Final = encode_varint(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Everything in a batch that is not its records."""

    base_offset: Offset = 0
    leader_epoch: int = NO_LEADER_EPOCH
    codec: Codec = Codec.NONE
    level: int | None = None
    """Compression level; None is Kafka's default for the codec."""
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    log_append_time_ms: int | None = None
    """When set, every record has this timestamp and the type log append time."""
    has_crc: bool = True
    """False leaves the CRC out, for a header that is rewritten before the batch is sent."""

    @property
    def attributes(self) -> int:
        """The attributes field of the batch's header."""
        return (
            self.codec
            | (LOG_APPEND_TIME_BIT if self.log_append_time_ms is not None else 0)
            | (TRANSACTIONAL_BIT if self.is_transactional else 0)
            | (CONTROL_BIT if self.is_control else 0)
        )


_DEFAULT_OPTIONS: Final = BatchOptions()


class BatchBuilder:
    """Collects records and turns them into the bytes of one batch.

    The first record's timestamp becomes the base timestamp, as in Kafka's
    ``MemoryRecordsBuilder``.
    """

    def __init__(self, options: BatchOptions = _DEFAULT_OPTIONS) -> None:
        self.options = options
        self._records = bytearray()
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self._last_offset_delta = -1

    @property
    def count(self) -> int:
        """Records so far."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression: an upper bound for most inputs."""
        return HEADER_SIZE + len(self._records)

    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[Header] = (),
        *,
        offset_delta: int | None = None,
    ) -> int:
        """Add a record; return its offset minus the base offset.

        ``timestamp`` in milliseconds. ``offset_delta`` leaves a gap, as compaction does; it must
        be greater than the last one.
        """
        delta = self._last_offset_delta + 1 if offset_delta is None else offset_delta
        assert delta > self._last_offset_delta, "offsets inside a batch increase"
        if not self._count:
            self._base_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        self._last_offset_delta = delta
        self._count += 1
        encode_record(
            self._records,
            timestamp_delta=wrap64(timestamp - self._base_timestamp),
            offset_delta=delta,
            key=key,
            value=value,
            headers=headers,
        )
        return delta

    def build(self) -> bytes:
        """Return the batch; it may hold no records at all, as compaction leaves some."""
        options = self.options
        append_time = options.log_append_time_ms
        return seal(
            compress(options.codec, self._records, options.level),
            options,
            last_offset_delta=max(self._last_offset_delta, 0),
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp if append_time is None else append_time,
            count=self._count,
        )


def encode_batch(records: Iterable[Record], options: BatchOptions = _DEFAULT_OPTIONS) -> bytes:
    """Return one batch of ``records``, whose own offsets are ignored: they get 0, 1, 2, ...

    after ``options.base_offset``.
    """
    builder = BatchBuilder(options)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build()


def encode_record(
    out: bytearray,
    *,
    timestamp_delta: int,
    offset_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    headers: Sequence[Header] = (),
) -> None:
    """Append one record's bytes to ``out``."""
    joined = b"".join(
        (
            b"\x00",
            encode_varint(timestamp_delta),
            encode_varint(offset_delta),
            _NULL if key is None else encode_varint(len(key)),
            key or b"",
            _NULL if value is None else encode_varint(len(value)),
            value or b"",
            encode_headers(headers) if headers else _NO_HEADERS,
        )
    )
    out += encode_varint(len(joined))
    out += joined


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Return the end of a record: the count of its headers, and the headers."""
    parts: list[bytes] = [encode_varint(len(headers))]
    for name, content in headers:
        encoded = name.encode("utf-8")
        parts += (encode_varint(len(encoded)), encoded)
        parts += (_NULL,) if content is None else (encode_varint(len(content)), content)
    return b"".join(parts)


def seal(
    payload: Buffer,
    options: BatchOptions,
    *,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> bytes:
    """Put a header before ``payload``, the records as the codec left them."""
    checked = CHECKED_HEADER.pack(
        options.attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        options.producer_id,
        options.producer_epoch,
        options.base_sequence,
        count,
    )
    front = _FRONT.pack(
        options.base_offset,
        HEADER_SIZE + len(payload) - LENGTH_OVERHEAD,
        options.leader_epoch,
        MAGIC,
        checksum(payload, checksum(checked)) if options.has_crc else 0,
    )
    return b"".join((front, checked, payload))
