"""Removes records from a batch, as compaction does: retained records keep their offsets.

A batch that loses records keeps its base offset, last offset, producer id, epoch and sequence, so
that consumers see a gap and the producer's next sequence still follows. Retained records are copied
unchanged, since their deltas are still right; only a new delete horizon, which replaces the base
timestamp, requires other timestamp deltas. Kafka: ``MemoryRecords.filterTo``; KIP-534.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import NO_TIMESTAMP
from millstream.records.batch import (
    ATTRIBUTES_POSITION,
    BASE_TIMESTAMP_POSITION,
    CODEC_MASK,
    COUNT_POSITION,
    CRC_POSITION,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LENGTH_POSITION,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAX_TIMESTAMP_POSITION,
    Batch,
)
from millstream.records.compression import DEFAULT_MAX_BYTES, compress, decompress
from millstream.records.crc32c import checksum
from millstream.records.record import wrap64
from millstream.records.varint import decode_varint, decode_varlong, encode_varint

_EMPTY_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_LENGTH_MAGIC: Final = struct.Struct(">i4xb")


class RecordSpan(NamedTuple):
    """The position of a record in its batch's records, and the fields that compaction needs.

    ``body`` is the position after the timestamp delta; ``key`` is None where there is none.
    """

    start: int
    body: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


@dataclass(frozen=True, slots=True)
class RetainedRecords:
    """The retained records of a batch: their unchanged bytes, their count, the largest timestamp
    delta, and whether there is a tombstone among them.
    """

    data: bytes
    count: int
    max_timestamp_delta: int
    has_tombstones: bool


NOTHING_RETAINED: Final = RetainedRecords(b"", 0, 0, False)


def decompressed_records(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """Return the bytes of a batch's records. Raises CorruptLogError."""
    return bytes(decompress(batch.codec, batch.records_view, max_bytes))


def record_spans(data: bytes, count: int) -> Iterator[RecordSpan]:
    """Yield the position of each of ``count`` records. Raises CorruptLogError unless they fill
    ``data``.

    Headers are skipped without parsing.
    """
    size = len(data)
    start = 0
    try:
        for _ in range(count):
            length, position = decode_varint(data, start)
            end = position + length
            timestamp_delta, body = decode_varlong(data, position + 1)
            offset_delta, position = decode_varint(data, body)
            length, position = decode_varint(data, position)
            key = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            value_length, position = decode_varint(data, position)
            if not position + max(value_length, 0) < end <= size:
                raise _misfit(count)
            yield RecordSpan(
                start, body, end, timestamp_delta, offset_delta, key, value_length >= 0
            )
            start = end
    except IndexError:
        raise _misfit(count) from None
    if start != size:
        raise _misfit(count)


def _misfit(count: int) -> CorruptLogError:
    return CorruptLogError(f"a batch does not hold its {count} records")


def retained_batch(
    batch: Batch, retained: RetainedRecords, *, delete_horizon_ms: int | None = None
) -> bytes:
    """Return ``batch`` with the ``retained`` records alone, compressed with its own codec.

    ``delete_horizon_ms``, if given, becomes the batch's; otherwise a present one is kept.
    """
    append_time = batch.attributes & LOG_APPEND_TIME_BIT
    max_timestamp = batch.max_timestamp
    if not append_time:
        max_timestamp = wrap64(batch.base_timestamp + retained.max_timestamp_delta)
    data, base_timestamp, attributes = retained.data, batch.base_timestamp, batch.attributes
    if delete_horizon_ms is not None:
        shift = base_timestamp - delete_horizon_ms
        fixed = batch.max_timestamp - delete_horizon_ms if append_time else None
        data = _with_deltas(retained, shift, fixed)
        base_timestamp = delete_horizon_ms
        attributes |= DELETE_HORIZON_BIT
    payload = compress(batch.codec, data)
    return _seal(
        bytearray(batch.buffer[:HEADER_SIZE]) + payload,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        count=retained.count,
    )


def empty_batch(batch: Batch) -> bytes:
    """Return the header alone, which preserves a producer's last sequence or the end of the log.

    Kafka: ``DefaultRecordBatch.writeEmptyHeader``.
    """
    return _seal(
        bytearray(batch.buffer[:HEADER_SIZE]),
        attributes=batch.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT),
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        count=0,
    )


def _with_deltas(retained: RetainedRecords, shift: int, fixed: int | None) -> bytes:
    """Return the records with ``shift`` added to each timestamp delta, or all of them ``fixed``."""
    data = retained.data
    parts: list[bytes] = []
    for span in record_spans(data, retained.count):
        delta = encode_varint(wrap64(span.timestamp_delta + shift if fixed is None else fixed))
        length = 1 + len(delta) + span.end - span.body
        parts += (encode_varint(length), b"\x00", delta, data[span.body : span.end])
    return b"".join(parts)


def _seal(
    made: bytearray, *, attributes: int, base_timestamp: int, max_timestamp: int, count: int
) -> bytes:
    length = len(made) - LENGTH_OVERHEAD
    assert length >= _EMPTY_LENGTH
    for position, size, number in (
        (LENGTH_POSITION, 4, length),
        (ATTRIBUTES_POSITION, 2, attributes),
        (BASE_TIMESTAMP_POSITION, 8, base_timestamp),
        (MAX_TIMESTAMP_POSITION, 8, max_timestamp),
        (COUNT_POSITION, 4, count),
    ):
        made[position : position + size] = number.to_bytes(size, "big", signed=True)
    crc = checksum(memoryview(made)[ATTRIBUTES_POSITION:])
    made[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(made)


def whole_batches_end(data: memoryview) -> int:
    """Return where the last whole batch in ``data`` ends, 0 if there is none.

    Raises CorruptLogError at bytes that cannot begin a batch.
    """
    end, size = 0, len(data)
    while size - end >= HEADER_SIZE:
        length, magic = _LENGTH_MAGIC.unpack_from(data, end + LENGTH_POSITION)
        if length < _EMPTY_LENGTH or magic != MAGIC:
            raise CorruptLogError(f"no batch of {length} bytes and magic {magic}")
        if length + LENGTH_OVERHEAD > size - end:
            break
        end += length + LENGTH_OVERHEAD
    return end
