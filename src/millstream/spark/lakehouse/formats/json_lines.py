"""json: each value is one JSON object; its fields become columns by name.

Arrow's own reader parses a whole batch at once. Where it stops at a value, the batch is read in
smaller pieces, and the piece at fault value by value. A field that the schema lacks is either left
out (option ``evolve`` false) or told to the driver, which adds the column and reads again; so is a
number or text that needs a wider type.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pj

from millstream.spark.lakehouse.formats.format import (
    TIMESTAMP,
    Decoded,
    Fields,
    FormatSpec,
    Rejected,
    add_metadata,
    decode_rows,
    with_metadata,
)
from millstream.spark.lakehouse.widening import changed_columns, merge

_ROW: Final = "\N{LEFT-POINTING ANGLE BRACKET}row\N{RIGHT-POINTING ANGLE BRACKET}"
"""A field that is put first into each object, so that a row of the answer names its value."""
_PIECE: Final = 512


class JsonFormat:
    """Objects to rows."""

    def __init__(self, spec: FormatSpec) -> None:
        self._columns = spec.columns
        self._evolve = spec.option("evolve", "true") == "true"

    def table_schema(self) -> pa.Schema:
        """Return the fields' columns and the records' places."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every object."""
        whole = self._decode_fast(batch)
        if whole is not None:
            return whole
        if len(batch) <= _PIECE:
            return self._decode_slowly(batch)
        pieces = [
            (first, self.decode(batch.slice(first, _PIECE)))
            for first in range(0, len(batch), _PIECE)
        ]
        rows = pa.Table.from_batches([piece.rows for _, piece in pieces]).combine_chunks()
        seen = None
        for _, piece in pieces:
            if piece.wider is not None:
                seen = piece.wider if seen is None else merge(seen, piece.wider)
        return Decoded(
            _one_batch(rows),
            [Rejected(first + e.row, e.reason) for first, piece in pieces for e in piece.rejected],
            seen,
        )

    def _decode_fast(self, batch: pa.RecordBatch) -> Decoded | None:
        """Read all values at once; None when one of them is not as it should be."""
        values = batch.column("value").to_pylist()
        lines = _lines(values)
        if lines is None:
            return None
        try:
            table = pj.read_json(
                pa.py_buffer(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines), 1)),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([(_ROW, pa.int32()), *self._columns]),
                    unexpected_field_behavior="infer" if self._evolve else "ignore",
                    newlines_in_values=True,
                ),
            )
        except pa.ArrowInvalid:
            return None
        expected = [row for row, value in enumerate(values) if value is not None]
        if table.num_rows != len(expected) or table[_ROW].to_pylist() != expected:
            return None
        seen = merge(self._columns, _plain(table.drop_columns([_ROW]).schema))
        wider = seen if any(changed_columns(self._columns, seen)) else None
        arrays = [table[column.name].combine_chunks() for column in self._columns]
        if len(expected) < len(batch):  # tombstones are rows of nulls
            index = iter(range(len(expected)))
            places = pa.array([None if v is None else next(index) for v in values], pa.int32())
            arrays = [array.take(places) for array in arrays]
        return Decoded(add_metadata(arrays, self._columns, batch, None), (), wider)

    def _decode_slowly(self, batch: pa.RecordBatch) -> Decoded:
        decoded = decode_rows(batch, self._columns, _read_object)
        if not self._evolve:
            return decoded
        seen = self._columns
        for value in batch.column("value").to_pylist():
            try:
                seen = merge(seen, infer([value]))
            except (pa.ArrowInvalid, ValueError):
                continue
        wider = seen if any(changed_columns(self._columns, seen)) else None
        return Decoded(decoded.rows, decoded.rejected, wider)


def infer(values: list[bytes | None]) -> pa.Schema:
    """Return the columns that hold these objects; ValueError when one of them is no object."""
    objects = [value for value in values if value is not None]
    for value in objects:
        _read_object(value)
    lines = b"\n".join(value.replace(b"\n", b" ") for value in objects)
    if not lines:
        return pa.schema([])
    table = pj.read_json(
        pa.py_buffer(lines), read_options=pj.ReadOptions(block_size=max(len(lines), 1))
    )
    return _plain(table.schema)


def _lines(values: list[bytes | None]) -> bytes | None:
    """Return the objects as lines with their rows' numbers; None unless all begin as objects."""
    lines = []
    for row, value in enumerate(values):
        if value is None:
            continue
        body = value.lstrip()
        if not body.startswith(b"{"):
            return None
        rest = body[1:].lstrip()
        comma = b"" if rest.startswith(b"}") else b","
        lines.append(b'{"%s":%d%s%s' % (_ROW.encode(), row, comma, rest))
    return b"\n".join(lines)


def _read_object(value: bytes) -> Fields:
    found: Any = json.loads(value)
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__}, not an object")  # noqa: TRY004
    return found


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return inferred types as tables keep them: times in UTC, unknown ones as text."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain_type(kind.value_type))
    return kind


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
