"""Which columns of the source a scan decodes, and what becomes of them before values are read.

Decoding keys, values and headers that nobody asked for costs more than all else. What a format
reads besides values is filled with nulls where a query does not use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.query.region import ANY, Interval
from millstream.spark.lakehouse.formats import FormatSpec
from millstream.spark.lakehouse.formats.format import METADATA_COLUMNS, with_metadata
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS

_TIMESTAMP: Final = "timestamp"
_LARGE: Final = frozenset({"value", "_key", "_headers"})
_SOURCE: Final = {"value": "value", **METADATA_COLUMNS}

RAW_TABLE: Final = with_metadata(pa.schema([RAW_COLUMNS.field("value")]))
"""The columns of a topic whose values are not decoded.

A raw load names them as the source does; ``offset`` and ``partition`` are words of SQL.
"""


def needed_columns(
    schema: pa.Schema, projected: Iterable[str], condition: pc.Expression | None
) -> list[str]:
    """Return the table's columns that the projection and the condition use, and perhaps more.

    An expression does not tell which columns it uses, but it fails on rows that lack one.
    """
    projected = list(projected)
    if condition is None:
        return projected
    light = [name for name in schema.names if name not in _LARGE or name in projected]
    for names in (projected, light):
        rows = pa.schema([schema.field(name) for name in names]).empty_table()
        try:
            rows.filter(condition)
        except (pa.ArrowInvalid, KeyError):
            continue
        return names
    return list(schema.names)


def read_schema(spec: FormatSpec, needed: Iterable[str], *, has_times: bool) -> pa.Schema:
    """Return the columns of the source to read for these columns of the table."""
    names = {_TIMESTAMP} if has_times else set()
    if spec.kind == "raw":
        names |= {_SOURCE[name] for name in needed}
    else:
        names |= {"value", *(METADATA_COLUMNS[name] for name in needed if name in METADATA_COLUMNS)}
        if spec.options.get("key", "binary") != "binary":
            names.add("key")
    return pa.schema([each for each in RAW_COLUMNS if each.name in names])


def raw_rows(batch: pa.RecordBatch, needed: Iterable[str]) -> pa.RecordBatch:
    """Return these columns of RAW_TABLE."""
    schema = pa.schema([RAW_TABLE.field(name) for name in needed])
    arrays = [batch.column(_SOURCE[each.name]).cast(each.type) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def filled(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return all columns of the source, nulls in those that were not read."""
    arrays = [
        batch.column(each.name)
        if batch.schema.get_field_index(each.name) >= 0
        else pa.nulls(len(batch), each.type)
        for each in RAW_COLUMNS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=RAW_COLUMNS)


def within(batch: pa.RecordBatch, times: Interval) -> pa.RecordBatch:
    """Return the records of these times (µs)."""
    if times == ANY:
        return batch
    found = batch.column(_TIMESTAMP).cast(pa.int64())
    mask = pc.and_(
        pc.greater_equal(found, pa.scalar(max(times.low, ANY.low), pa.int64())),
        pc.less_equal(found, pa.scalar(min(times.high, ANY.high), pa.int64())),
    )
    return batch.filter(mask)
