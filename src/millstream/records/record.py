"""One record inside a batch, and the walk over a batch's records.

Layout (every number a zig-zag varint, ``timestamp delta`` of up to 64 bits, the others of 32)::

    length | attributes i8 = 0 | timestamp delta | offset delta
           | key length, key | value length, value
           | header count, then per header: key length, key (UTF-8), value length, value

A length of -1 is null; header keys are never null. ``length`` counts what follows it. Deltas are
against the batch's base timestamp and base offset (Kafka: ``DefaultRecord``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.records.batch import LOG_APPEND_TIME_BIT, Batch
from millstream.records.compression import DEFAULT_MAX_BYTES, decompress
from millstream.records.varint import decode_varint, decode_varlong

Header: TypeAlias = tuple[str, bytes | None]
"""A record header: its key and its value."""

MIN_RECORD_BYTES = 7
"""The smallest record: length, attributes, two deltas, null key, null value, no headers."""


class Record(NamedTuple):
    """A record as applications know it; ``timestamp`` in milliseconds since 1970, -1 for none."""

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Outline(NamedTuple):
    """What checks need of a record."""

    timestamp_delta: int
    offset_delta: int
    key_length: int
    """-1 for a null key."""


def read_records(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> list[Record]:
    """Return the batch's records, decompressed to at most ``max_bytes``.

    A batch whose timestamp type is log append time gives every record its max timestamp. Raises
    CorruptLogError when the records are not exactly those that the header announces.
    """
    return list(iter_records(batch, max_bytes))


def iter_records(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[Record]:
    """Yield the batch's records one by one; see :func:`read_records`."""
    data = bytes(decompress(batch.codec, batch.records_view, max_bytes))
    base_offset = batch.base_offset
    base_timestamp = batch.base_timestamp
    append_time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
    position = 0
    for _ in range(batch.count):
        try:
            timestamp_delta, offset_delta, key, value, headers, position = _decode(data, position)
        except IndexError:
            raise _cut_off(batch, position) from None
        yield Record(
            base_offset + offset_delta,
            base_timestamp + timestamp_delta if append_time is None else append_time,
            key,
            value,
            headers,
        )
    if position != len(data):
        raise CorruptLogError(
            f"the batch at offset {base_offset} has bytes after its {batch.count} records"
        )


def read_outlines(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> list[Outline]:
    """Return the outlines of the batch's records, checked as :func:`read_records` checks them."""
    outlines = []
    data = bytes(decompress(batch.codec, batch.records_view, max_bytes))
    position = 0
    for _ in range(batch.count):
        try:
            outline, position = _outline(data, position)
        except IndexError:
            raise _cut_off(batch, position) from None
        outlines.append(outline)
    if position != len(data):
        raise CorruptLogError(
            f"the batch at offset {batch.base_offset} has bytes after its {batch.count} records"
        )
    return outlines


def _cut_off(batch: Batch, position: int) -> CorruptLogError:
    return CorruptLogError(
        f"the batch at offset {batch.base_offset} ends inside the record at byte {position}"
    )


def _decode(
    data: bytes, position: int
) -> tuple[int, int, bytes | None, bytes | None, tuple[Header, ...], int]:
    length, position = decode_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptLogError(f"a record length of {length} at byte {position}")
    timestamp_delta, position = decode_varlong(data, position + 1)
    offset_delta, position = decode_varint(data, position)
    key, position = _bytes(data, position, end)
    value, position = _bytes(data, position, end)
    header_count, position = decode_varint(data, position)
    headers: tuple[Header, ...] = ()
    if header_count:
        headers, position = _headers(data, position, end, header_count)
    if position != end:
        raise CorruptLogError(f"a record at byte {end - length} does not fill its length")
    return timestamp_delta, offset_delta, key, value, headers, position


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(data, position)
    if length < 0:
        return None, position
    stop = position + length
    if stop > end:
        raise CorruptLogError(f"a field of {length} bytes at byte {position} leaves its record")
    return data[position:stop], stop


def _headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[Header, ...], int]:
    if count < 0 or count > end - position:
        raise CorruptLogError(f"a header count of {count} at byte {position}")
    headers = []
    for _ in range(count):
        key, position = _bytes(data, position, end)
        if key is None:
            raise CorruptLogError(f"a header without a key before byte {position}")
        value, position = _bytes(data, position, end)
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _outline(data: bytes, position: int) -> tuple[Outline, int]:
    length, position = decode_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise CorruptLogError(f"a record length of {length} at byte {position}")
    timestamp_delta, position = decode_varlong(data, position + 1)
    offset_delta, position = decode_varint(data, position)
    key_length, position = decode_varint(data, position)
    position += max(key_length, 0)
    value_length, position = decode_varint(data, position)
    position += max(value_length, 0)
    header_count, position = decode_varint(data, position)
    if header_count:
        _, position = _headers(data, position, end, header_count)
    if position != end:
        raise CorruptLogError(f"a record at byte {end - length} does not fill its length")
    return Outline(timestamp_delta, offset_delta, key_length), end
