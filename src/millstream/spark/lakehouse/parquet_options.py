"""How the columns of a data file are written to Parquet (decisions 0053 and 0132).

Names, addresses and codes are the same over and over in most topics. A dictionary takes less time
to write than the texts do, and a third of their room; where values differ it takes time for
nothing. So a file's first rows tell.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

_DICTIONARY: Final = frozenset({"topic", "_topic", "partition", "_partition", "timestampType"})
_ASCENDING: Final = frozenset({"offset", "_offset", "timestamp", "_timestamp"})
"""Columns with delta encoding, which takes one byte per value instead of eight."""

_OPAQUE: Final = frozenset({"value", "headers", "_headers"})
"""Columns without statistics: no reader skips rows by them, and computing the minimum and maximum
costs more than writing them.
"""

_SAMPLES: Final = 4
_SAMPLE_ROWS: Final = 1024
"""A column is judged by so many pieces of a file's first row group, each of so many rows."""

_LEAST_ROWS: Final = 1024
"""In a smaller file a dictionary saves nothing that counts."""

_MOST_DISTINCT: Final = 0.5
"""Up to this share of distinct values a dictionary is the faster way."""

_LEAST_TEXT_BYTES: Final = 10
"""Shorter texts are compressed as fast as they are looked up."""

_LEAST_NUMBER_BYTES: Final = 8


def parquet_options(rows: pa.Table) -> dict[str, Any]:
    """Return the options of a file that begins with ``rows``."""
    schema = rows.schema
    ascending = [
        field.name
        for field in schema
        if field.name in _ASCENDING
        and (pa.types.is_int64(field.type) or pa.types.is_timestamp(field.type))
    ]
    opaque = {
        field.name
        for field in schema
        if field.name in _OPAQUE
        and (pa.types.is_binary(field.type) or pa.types.is_nested(field.type))
    }
    known = _DICTIONARY | _OPAQUE | frozenset(ascending)
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": [
            name
            for name in schema.names
            if name in _DICTIONARY or (name not in known and _repeats(rows, name))
        ],
        "column_encoding": dict.fromkeys(ascending, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in schema.names if name not in opaque] or False,
        "write_batch_size": 1 << 14,
    }


def _repeats(rows: pa.Table, name: str) -> bool:
    """Tell whether a column's values are few and long enough for a dictionary."""
    kind = rows.schema.field(name).type
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    is_wide = pa.types.is_integer(kind) and kind.byte_width >= _LEAST_NUMBER_BYTES
    if len(rows) < _LEAST_ROWS or not (is_text or is_wide):
        return False
    sample = _sample(rows.column(name)).drop_null()
    if not len(sample) or pc.count_distinct(sample).as_py() > _MOST_DISTINCT * len(sample):
        return False
    return not is_text or pc.sum(pc.binary_length(sample)).as_py() >= _LEAST_TEXT_BYTES * len(
        sample
    )


def _sample(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return rows from all over a column."""
    if len(column) <= _SAMPLES * _SAMPLE_ROWS:
        return column
    step = len(column) // _SAMPLES
    pieces = [column.slice(number * step, _SAMPLE_ROWS) for number in range(_SAMPLES)]
    return pa.chunked_array([chunk for piece in pieces for chunk in piece.chunks], column.type)
