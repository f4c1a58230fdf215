"""A version 2 record batch, read in place.

Layout, big endian (Kafka: ``DefaultRecordBatch``; KIP-98)::

     0        8      12      16    17      21         23         27        35
     +--------+-------+-------+-----+-------+----------+----------+---------+---------+
     | base   | batch | part. |magic|CRC-32C|attributes| last     | base    | max     |
     | offset | length| leader|  2  |       |          | offset   | time-   | time-   |
     | i64    | i32   | epoch |     | u32   | i16      | delta i32| stamp   | stamp   |
     |        |       | i32   | i8  |       |          |          | i64     | i64     |
     +--------+-------+-------+-----+-------+----------+----------+---------+---------+
    43         51         53         57       61
     +----------+----------+----------+--------+----------------------------------+
     | producer | producer | base     | record | records, or one compressed       |
     | id i64   | epoch i16| sequence | count  | stream that holds them           |
     |          |          | i32      | i32    |                                  |
     +----------+----------+----------+--------+----------------------------------+

Batch length counts from byte 12, so a batch takes 12 bytes more. The CRC covers byte 21 to the
end: base offset and leader epoch, which a leader assigns, lie outside it.

Attributes::

    bit 0-2  codec: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    bit 3    timestamp type: 0 create time, 1 log append time (max timestamp is then every record's)
    bit 4    part of a transaction
    bit 5    control batch
    bit 6    base timestamp is the delete horizon (set by compaction)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Self

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.model.producer import NO_PRODUCER_ID, NO_SEQUENCE, next_sequence
from millstream.records.crc32c import Buffer, checksum
from millstream.records.legacy import check_not_legacy

MAGIC: Final = 2

BASE_OFFSET_POSITION: Final = 0
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
COUNT_POSITION: Final = 57

LENGTH_OVERHEAD: Final = 12
"""Bytes before the ones that the length field counts."""

HEADER_SIZE: Final = 61
"""Bytes before the first record."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""The whole header in one call: base offset, length, leader epoch, magic, CRC, attributes, last
offset delta, base timestamp, max timestamp, producer id, producer epoch, base sequence, count.
"""

CHECKED_HEADER: Final = struct.Struct(">hiqqqhii")
"""The part of the header that the CRC covers: everything behind it."""

_INT32 = struct.Struct(">i")
_OFFSET_LENGTH_EPOCH = struct.Struct(">qii")
_MAX_OFFSET: Final = 2**63 - 1
_INT64 = struct.Struct(">q")
_INT16 = struct.Struct(">h")


class Batch:
    """The header of one batch, unpacked once, and a view of its bytes.

    ``buffer`` holds the batch from its first byte: all of it, or the header alone if
    :func:`header_at` had no more bytes.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffer",
        "count",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
    )

    buffer: memoryview
    base_offset: Offset
    length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        (
            self.base_offset,
            self.length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = HEADER.unpack_from(buffer)

    @property
    def size(self) -> int:
        """Bytes that the batch takes in a log, header and records."""
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record that the batch ever had (compaction keeps it)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> Offset:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """A ``Codec`` number, 0 to 7; 5 to 7 are not assigned."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 when producers set the timestamps, 1 when the broker did."""
        return (self.attributes & LOG_APPEND_TIME_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        """True when the batch, data or marker, belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True if it is a control batch (a marker) and not data."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Time after which compaction may drop the batch's tombstones; None when not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        """True when an idempotent producer wrote it."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; -1 when the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def records_view(self) -> memoryview:
        """The bytes after the header: records, or one compressed stream."""
        return self.buffer[HEADER_SIZE : self.size]

    @property
    def is_valid(self) -> bool:
        """True when all bytes are here and the CRC over them is the stored one."""
        size = self.size
        if size < HEADER_SIZE or len(self.buffer) < size:
            return False
        return checksum(self.buffer[ATTRIBUTES_POSITION:size]) == self.crc

    def ensure_valid(self) -> None:
        """Raise CorruptLogError unless the CRC holds (Kafka: ``ensureValid``)."""
        if not self.is_valid:
            raise CorruptLogError(
                f"the batch at offset {self.base_offset} ({self.size} bytes) fails its CRC-32C"
            )

    def assign(self, *, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
        """Set the base offset and the leader epoch.

        Both fields lie outside the CRC, so nothing else changes (Kafka: ``setLastOffset``,
        ``setPartitionLeaderEpoch``). They are written into a writable ``buffer``; for a read-only
        one, :attr:`prefix` is written instead of the first 16 bytes.
        """
        self.base_offset = base_offset
        self.partition_leader_epoch = leader_epoch
        if not self.buffer.readonly:
            _OFFSET_LENGTH_EPOCH.pack_into(self.buffer, 0, base_offset, self.length, leader_epoch)

    def copy(self) -> Self:
        """Return a copy of the batch, which remains valid after the request it came with."""
        return type(self)(memoryview(bytearray(self.buffer)))

    @property
    def prefix(self) -> bytes:
        """The first 16 bytes as the fields stand now: what goes before ``buffer[16:]`` in a
        gathered write when the buffer could not be written to.
        """
        return _OFFSET_LENGTH_EPOCH.pack(self.base_offset, self.length, self.partition_leader_epoch)

    def __repr__(self) -> str:
        return (
            f"Batch(offsets=[{self.base_offset}, {self.last_offset}], count={self.count}, "
            f"size={self.size}, leader_epoch={self.partition_leader_epoch}, "
            f"attributes={self.attributes:#04x}, producer_id={self.producer_id}, "
            f"producer_epoch={self.producer_epoch}, base_sequence={self.base_sequence})"
        )


def header_at(buffer: Buffer, position: int = 0) -> Batch:
    """Return the batch whose header starts at ``position``; its records may be cut off.

    Raises CorruptLogError when fewer than 61 bytes are left or when length, magic or last offset
    delta cannot be a batch's; UnsupportedFormatError on a sound message of magic 0 or 1.
    """
    view = memoryview(buffer)
    if len(view) - position < HEADER_SIZE:
        check_not_legacy(view[position:])
        raise CorruptLogError(f"a batch header is cut off at position {position}")
    (length,) = _INT32.unpack_from(view, position + LENGTH_POSITION)
    batch = Batch(view[position : position + max(length + LENGTH_OVERHEAD, HEADER_SIZE)])
    _check_header(batch, position)
    return batch


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[Batch]:
    """Yield the complete batches from ``position`` on; one that is cut off ends the walk.

    Bytes that cannot be a batch raise as in :func:`header_at`. CRCs are not checked: see
    :meth:`Batch.ensure_valid`.
    """
    view = memoryview(buffer)
    end = len(view)
    while end - position >= HEADER_SIZE:
        batch = header_at(view, position)
        if position + batch.size > end:
            return
        yield batch
        position += batch.size
    check_not_legacy(view[position:])


def _check_header(batch: Batch, position: int) -> None:
    if batch.magic != MAGIC:
        check_not_legacy(batch.buffer)
        raise CorruptLogError(f"magic {batch.magic} at position {position}")
    if batch.length < HEADER_SIZE - LENGTH_OVERHEAD:
        raise CorruptLogError(f"batch length {batch.length} at position {position}")
    if (
        batch.last_offset_delta < 0
        or batch.count < 0
        or not 0 <= batch.base_offset <= _MAX_OFFSET - batch.last_offset_delta
    ):
        raise CorruptLogError(
            f"offsets [{batch.base_offset}, {batch.last_offset}] and count {batch.count} "
            f"at position {position}"
        )


def rewrite_timestamps(batch: Batch, *, max_timestamp: int, log_append_time: bool) -> Batch:
    """Return a copy with this max timestamp and timestamp type, and a new CRC (Kafka:
    ``setMaxTimestamp``).
    """
    copy = bytearray(batch.buffer)
    attributes = batch.attributes & ~LOG_APPEND_TIME_BIT
    if log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    _INT16.pack_into(copy, ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(copy, MAX_TIMESTAMP_POSITION, max_timestamp)
    return _with_new_crc(copy)


def rewrite_payload(batch: Batch, payload: Buffer, *, codec: int, max_timestamp: int) -> Batch:
    """Return a copy whose records are ``payload``, compressed with ``codec``."""
    copy = bytearray(batch.buffer[:HEADER_SIZE]) + payload
    _INT32.pack_into(copy, LENGTH_POSITION, len(copy) - LENGTH_OVERHEAD)
    _INT16.pack_into(copy, ATTRIBUTES_POSITION, batch.attributes & ~CODEC_MASK | codec)
    _INT64.pack_into(copy, MAX_TIMESTAMP_POSITION, max_timestamp)
    return _with_new_crc(copy)


def _with_new_crc(copy: bytearray) -> Batch:
    view = memoryview(copy)
    crc = checksum(view[ATTRIBUTES_POSITION:])
    view[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return Batch(view)
