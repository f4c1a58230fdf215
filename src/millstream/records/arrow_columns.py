"""Decoded columns as Arrow record batches, in the shape of Spark's Kafka source.

Columns by name, of exactly these types: ``key`` and ``value`` binary, ``topic`` string,
``partition`` int32, ``offset`` int64, ``timestamp`` timestamp[us, UTC], ``timestampType`` int32,
``headers`` list<struct<key: string, value: binary>>, null for a record without headers. Timestamps
beyond the range of microseconds (the year 294,247 and its negative) are clamped to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.records.column_decoder import Bytes, Cells, Headers, Int64s

if TYPE_CHECKING:
    from millstream.records.columns import RecordColumns

_MAX_ARENA_BYTES: Final = 2**31 - 1
_MOST_TIMESTAMP_MS: Final = (2**63 - 1) // 1000


def to_record_batch(
    columns: RecordColumns, schema: pa.Schema, *, topic: str, partition: int
) -> pa.RecordBatch:
    """Return the columns that ``schema`` names, in its order.

    Numbers are not copied; keys, values and headers are gathered from the arena, which is below 2
    GiB. Raises ValueError on a larger arena and KeyError on a column of another name.
    """
    if len(columns.arena) > _MAX_ARENA_BYTES:
        raise ValueError("Arrow's binary type holds less than 2 GiB: decode fewer batches at once")
    rows = len(columns)
    make: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "key": lambda _: binary_array(columns.arena, columns.key),
        "value": lambda _: binary_array(columns.arena, columns.value),
        "topic": lambda _: pa.repeat(pa.scalar(topic, pa.string()), rows),
        "partition": lambda _: _numbers(pa.int32(), np.full(rows, partition, np.int32)),
        "offset": lambda _: _numbers(pa.int64(), columns.offset),
        "timestamp": lambda kind: _numbers(kind, _microseconds(columns.timestamp_ms)),
        "timestampType": lambda _: _numbers(pa.int32(), columns.timestamp_type),
        "headers": lambda kind: _headers_array(columns.arena, columns.headers, kind),
    }
    arrays = [make[field.name](field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def binary_array(arena: Bytes, cells: Cells) -> pa.BinaryArray:
    """Gather cells into an Arrow array.

    The arena is described as an Arrow array of cells and the gaps between them, and Arrow's
    ``take`` copies the cells.
    """
    rows = len(cells.start)
    null = cells.length < 0
    nulls = int(np.count_nonzero(null))
    if nulls == rows:
        return pa.nulls(rows, pa.binary())
    bounds = np.empty((rows, 2), np.int32)
    bounds[:, 0] = cells.start
    bounds[:, 1] = cells.start + np.maximum(cells.length, 0)
    cells_and_gaps = pa.BinaryArray.from_buffers(
        pa.binary(), 2 * rows - 1, [None, pa.py_buffer(bounds), pa.py_buffer(arena)]
    )
    taken = cells_and_gaps.take(pa.array(np.arange(0, 2 * rows, 2, dtype=np.int32)))
    if not nulls:
        return taken
    validity = pa.py_buffer(np.packbits(~null, bitorder="little"))
    _, offsets, data = taken.buffers()
    return pa.BinaryArray.from_buffers(pa.binary(), rows, [validity, offsets, data], nulls)


def _numbers(
    kind: pa.DataType, values: Int64s | np.ndarray[tuple[int], np.dtype[np.int32]]
) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _microseconds(timestamp_ms: Int64s) -> Int64s:
    return np.clip(timestamp_ms, -_MOST_TIMESTAMP_MS, _MOST_TIMESTAMP_MS) * 1000


def _headers_array(arena: Bytes, headers: Headers, kind: pa.DataType) -> pa.Array:
    rows = len(headers.count)
    if not headers.count.any():
        return pa.nulls(rows, kind)
    keys = binary_array(arena, headers.key)
    pairs = pa.StructArray.from_arrays(
        [as_text(keys), binary_array(arena, headers.value)], fields=list(kind.value_type)
    )
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(headers.count, out=offsets[1:])
    none = headers.count == 0
    validity = pa.py_buffer(np.packbits(~none, bitorder="little"))
    return pa.Array.from_buffers(
        kind,
        rows,
        [validity, pa.py_buffer(offsets)],
        int(np.count_nonzero(none)),
        children=[pairs],
    )


def as_text(keys: pa.BinaryArray) -> pa.StringArray:
    """Return header keys as strings; bytes that are no UTF-8 are replaced, as Java does."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
