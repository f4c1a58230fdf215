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
from typing import Final, NamedTuple, TypeAlias

from millstream.model.errors import CorruptLogError
from millstream.model.offsets import Offset
from millstream.records.batch import LOG_APPEND_TIME_BIT, Batch
from millstream.records.compression import DEFAULT_MAX_BYTES, decompress
from millstream.records.varint import decode_varint, decode_varlong

Header: TypeAlias = tuple[str, bytes | None]
"""A record header: its key and its value."""

MIN_RECORD_BYTES: Final = 7
"""The smallest record: length, attributes, two deltas, null key, null value, no headers."""


class Record(NamedTuple):
    """A record in the form that applications use; ``timestamp`` in milliseconds since 1970, -1 for
    none.
    """

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def read_records(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> list[Record]:
    """Return the batch's records, decompressed to at most ``max_bytes``.

    A batch whose timestamp type is log append time gives every record its max timestamp. Raises
    CorruptLogError when the records are not exactly those that the header announces.
    """
    return list(iter_records(batch, max_bytes))


def iter_records(batch: Batch, max_bytes: int = DEFAULT_MAX_BYTES) -> Iterator[Record]:
    """Yield the batch's records one by one; see :func:`read_records`."""
    yield from walk_records(batch, bytes(decompress(batch.codec, batch.records_view, max_bytes)))


def walk_records(
    batch: Batch, data: bytes, *, index: int = 0, position: int = 0
) -> Iterator[Record]:
    """Yield the records of ``data``, the batch's decompressed, from the one numbered ``index``,
    which starts at ``position``, on; errors as in :func:`read_records`.
    """
    append_time = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
    size = len(data)
    for _ in range(index, batch.count):
        try:
            length, position = decode_varint(data, position)
            end = position + length
            timestamp_delta, position = decode_varlong(data, position + 1)
            offset_delta, position = decode_varint(data, position)
            key, position = _field(data, position)
            value, position = _field(data, position)
            headers: tuple[Header, ...] = ()
            if data[position]:
                headers, position = _headers(data, position, end)
            else:
                position += 1
        except IndexError:
            raise _misfit(batch) from None
        if position != end or end > size:
            raise _misfit(batch)
        timestamp = batch.base_timestamp + timestamp_delta if append_time is None else append_time
        offset = wrap64(batch.base_offset + offset_delta)
        yield Record(offset, wrap64(timestamp), key, value, headers)
    if position != size:
        raise _misfit(batch)


def wrap64(number: int) -> int:
    """Return a sum wrapped to 64 bits: only an invalid delta exceeds them."""
    if -(2**63) <= number < 2**63:
        return number
    return (number + 2**63) % 2**64 - 2**63


def _field(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(data, position)
    if length < 0:
        return None, position
    end = position + length
    return data[position:end], end


def _headers(data: bytes, position: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, position = decode_varint(data, position)
    if count < 0 or count > end - position:
        raise CorruptLogError(f"a header count of {count} in a record")
    headers = []
    for _ in range(count):
        key, position = _field(data, position)
        if key is None:
            raise CorruptLogError("a record header without a key")
        value, position = _field(data, position)
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), position


def _misfit(batch: Batch) -> CorruptLogError:
    return CorruptLogError(
        f"the batch at offset {batch.base_offset} does not hold its {batch.count} records"
    )
