"""Arrow columns to version 2 batches with numpy, without touching records singly.

A record is five pieces in a row: the fields before the key, the key, the value's length, the
value, the headers. The pieces that hold numbers are computed for all records at once with numpy;
Arrow's own kernel joins the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from millstream.model.offsets import NO_TIMESTAMP
from millstream.model.producer import NO_SEQUENCE, next_sequence
from millstream.records.arrow_layouts import as_bytes, header_columns
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchOptions, seal
from millstream.records.column_decoder import Bytes, Int64s
from millstream.records.compression import compress
from millstream.records.varint import encode_varint

_MAX_NUMBERS_BYTES: Final = 32
"""The largest size of the numbers of a record without headers."""

_GROUP_BYTES: Final = 64 * 1024 * 1024
"""Records are joined this many bytes at a time: Arrow's binary type ends at 2 GiB."""

_NO_HEADERS: Final = b"\x00"


def encode_with_numpy(
    *,
    timestamp_ms: Int64s,
    value: pa.Array,
    key: pa.Array,
    headers: pa.Array | None,
    options: BatchOptions,
    max_batch_bytes: int,
) -> Iterator[tuple[bytes, int, int]]:
    """Yield batches that hold the rows in their order, the count and the latest timestamp of each.

    The arguments are those of ``arrow_encoder.encode_rows``.
    """
    keys, values = key.cast(pa.binary()), value.cast(pa.binary())
    tails = None if headers is None else _header_tails(headers)
    sizes = np.maximum(_lengths(keys), 0) + np.maximum(_lengths(values), 0) + _MAX_NUMBERS_BYTES
    if tails is not None:
        sizes += _lengths(tails)
    for starts in _groups(sizes, max_batch_bytes - HEADER_SIZE):
        part = slice(int(starts[0]), int(starts[-1]))
        yield from _encode_group(
            starts - part.start,
            timestamp_ms[part],
            keys[part],
            values[part],
            None if tails is None else tails[part],
            _continued(options, part.start),
        )


def _groups(sizes: Int64s, batch_bytes: int) -> Iterator[Int64s]:
    """Yield the first rows of batches, and the row after the last, for some batches at a time."""
    ends = np.cumsum(sizes)
    rows = len(sizes)
    row, done = 0, 0
    starts = [0]
    group_end = _GROUP_BYTES
    while row < rows:
        row = max(int(np.searchsorted(ends, done + batch_bytes, side="right")), row + 1)
        done = int(ends[row - 1])
        starts.append(row)
        if done >= group_end or row == rows:
            yield np.array(starts, np.int64)
            starts = [row]
            group_end = done + _GROUP_BYTES


def _encode_group(
    starts: Int64s,
    timestamp_ms: Int64s,
    keys: pa.Array,
    values: pa.Array,
    tails: pa.Array | None,
    options: BatchOptions,
) -> Iterator[tuple[bytes, int, int]]:
    firsts, counts = starts[:-1], np.diff(starts)
    base_timestamps = timestamp_ms[firsts]
    payload, ends = _join_records(
        timestamp_ms - np.repeat(base_timestamps, counts),
        np.arange(len(timestamp_ms)) - np.repeat(firsts, counts),
        keys,
        values,
        tails,
    )
    latest = np.maximum(np.maximum.reduceat(timestamp_ms, firsts), NO_TIMESTAMP)
    bounds = ends[starts].tolist()
    for index, (first, count) in enumerate(zip(firsts.tolist(), counts.tolist(), strict=True)):
        records = payload[bounds[index] : bounds[index + 1]]
        append_time = options.log_append_time_ms
        max_timestamp = int(latest[index]) if append_time is None else append_time
        batch = seal(
            compress(options.codec, records, options.level),
            _continued(options, first),
            last_offset_delta=count - 1,
            base_timestamp=int(base_timestamps[index]),
            max_timestamp=max_timestamp,
            count=count,
        )
        yield batch, count, max_timestamp


def _join_records(
    timestamp_delta: Int64s,
    offset_delta: Int64s,
    keys: pa.Array,
    values: pa.Array,
    tails: pa.Array | None,
) -> tuple[memoryview, NDArray[np.int32]]:
    """Return the bytes of all records, and where each ends, after a leading 0."""
    key_length, value_length = _lengths(keys), _lengths(values)
    numbers = [_zigzag(timestamp_delta), _zigzag(offset_delta), _zigzag(key_length)]
    middle = _zigzag(value_length)
    size = 1 + np.maximum(key_length, 0) + np.maximum(value_length, 0) + _varint_sizes(middle)
    for number in numbers:
        size += _varint_sizes(number)
    size += 1 if tails is None else _lengths(tails)
    attributes = np.zeros(len(size), np.uint64)
    joined = pc.binary_join_element_wise(
        _varints([_zigzag(size), attributes, *numbers]),
        keys,
        _varints([middle]),
        values,
        pa.scalar(_NO_HEADERS, pa.binary()) if tails is None else tails,
        pa.scalar(b"", pa.binary()),
        null_handling="replace",
        null_replacement=b"",
    )
    _, offsets, data = joined.buffers()
    return memoryview(data), np.frombuffer(offsets, np.int32, len(size) + 1)


def _zigzag(numbers: Int64s) -> NDArray[np.uint64]:
    return ((numbers << 1) ^ (numbers >> 63)).astype(np.int64).view(np.uint64)


def _varint_sizes(numbers: NDArray[np.uint64]) -> Int64s:
    sizes = np.ones(len(numbers), np.int64)
    rest = numbers >> np.uint64(7)
    while rest.any():
        sizes += rest > 0
        rest = rest >> np.uint64(7)
    return sizes


def _varints(columns: list[NDArray[np.uint64]]) -> pa.BinaryArray:
    """Return, row by row, the varints of all columns one after the other."""
    rows = len(columns[0])
    sizes = [_varint_sizes(column) for column in columns]
    widths = [int(size.max()) if rows else 1 for size in sizes]
    cells = np.empty((rows, sum(widths)), np.uint8)
    used = np.empty(cells.shape, np.bool_)
    at = 0
    for numbers, size, width in zip(columns, sizes, widths, strict=True):
        rest = numbers
        for index in range(width):
            cells[:, at] = (rest & np.uint64(0x7F)).astype(np.uint8)
            cells[:, at] |= (size > index + 1).astype(np.uint8) << np.uint8(7)
            used[:, at] = size > index
            rest = rest >> np.uint64(7)
            at += 1
    return _binary_array(cells[used], sum(sizes[1:], start=sizes[0]))


def _binary_array(data: Bytes, sizes: Int64s) -> pa.BinaryArray:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _lengths(column: pa.BinaryArray) -> Int64s:
    """Return the length of each cell, -1 for null."""
    lengths: NDArray[np.int32] = pc.fill_null(pc.binary_length(column), -1).to_numpy()
    return lengths.astype(np.int64)


def _header_tails(headers: pa.Array) -> pa.BinaryArray:
    """Return each row's header count and headers, encoded."""
    columns = [as_bytes(each).cast(pa.large_binary()) for each in header_columns(headers)]
    pairs = list(zip(*(each.to_pylist() for each in columns), strict=True))
    bounds = headers.offsets.to_pylist()
    tails = [
        _tail(pairs[start:stop]) if valid else _NO_HEADERS
        for start, stop, valid in zip(
            bounds, bounds[1:], headers.is_valid().to_pylist(), strict=False
        )
    ]
    return pa.array(tails, pa.binary())


def _tail(pairs: list[tuple[bytes, bytes | None]]) -> bytes:
    """Return the end of a record: what ``builder.encode_headers`` makes of keys that are text."""
    parts = [encode_varint(len(pairs))]
    for key, value in pairs:
        parts += (encode_varint(len(key)), key)
        parts += (encode_varint(-1),) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def _continued(options: BatchOptions, rows: int) -> BatchOptions:
    if options.base_sequence == NO_SEQUENCE or not rows:
        return options
    return replace(options, base_sequence=next_sequence(options.base_sequence, rows))
