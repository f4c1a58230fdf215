"""json: each value is one JSON object; its fields become columns by name.

Arrow's own reader parses a whole batch at once. If it fails at a value, the batch is read in
smaller and smaller parts, and the invalid value on its own. A field that the schema lacks is either
left out (option ``evolve`` false) or reported to the driver, which adds the column and reads again;
the same applies to a number that needs a wider type. A field that has only been null or an empty
list or object so far has no type and gets no column yet. A field whose name is already that of a
column, in another case or as one of the table's own, cannot become a column: its record is
rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.spark.lakehouse.formats.format import (
    METADATA,
    MOST_EXACT,
    TIMESTAMP,
    Decoded,
    Fields,
    FormatSpec,
    add_metadata,
    decode_in_parts,
    decode_rows,
    spread,
    with_metadata,
)
from millstream.spark.lakehouse.widening import changed_columns, merge, one_of_each_name, wider

_ROW: Final = "\N{LEFT-POINTING ANGLE BRACKET}row\N{RIGHT-POINTING ANGLE BRACKET}"
"""A field that is inserted first into each object, so that a row of the result identifies its
value.
"""
_DEEPEST: Final = 50
"""Levels of lists and objects; beyond, no reader of the table would follow."""
_STEPS: Final = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_ENDS: Final = (("min", -1), ("max", 1))


class JsonFormat:
    """Objects to rows."""

    def __init__(self, spec: FormatSpec) -> None:
        self._columns = spec.columns
        self._evolve = spec.option("evolve", "true") == "true"
        self._fixed = spec.fixed
        own = {*METADATA.names, *spec.reserved}
        self._taken = {name.casefold(): name for name in (*own, *spec.columns.names)}

    def table_schema(self) -> pa.Schema:
        """Return the columns of the fields and of the records' positions."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every object."""
        return decode_in_parts(batch, self._decode_fast, self._decode_slowly)

    def _decode_fast(self, batch: pa.RecordBatch) -> Decoded | None:
        """Read all values at once; None if one of them is invalid."""
        values = batch.column("value").to_pylist()
        lines = _lines(values)
        if lines is None:
            return None
        if values and not lines:
            nulls = [pa.nulls(len(values), column.type) for column in self._columns]
            return Decoded(add_metadata(nulls, self._columns, batch, None))
        try:
            str(lines, "utf-8")  # which Arrow's reader does not check
            table = pj.read_json(
                pa.py_buffer(lines),
                read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines), 1)),
                parse_options=pj.ParseOptions(
                    explicit_schema=pa.schema([(_ROW, pa.int32()), *self._columns]),
                    unexpected_field_behavior="infer" if self._evolve else "ignore",
                    newlines_in_values=True,
                ),
            )
            found = _plain(table.drop_columns([_ROW]).schema)
        except (pa.ArrowInvalid, ValueError):
            return None
        expected = [row for row, value in enumerate(values) if value is not None]
        if table.num_rows != len(expected) or table[_ROW].to_pylist() != expected:
            return None
        if _has_rounded(table, self._columns):
            return None
        if any(table[name].type != self._columns.field(name).type for name in self._fixed):
            return None
        more = self._wider(found)
        if more is None and not self._are_free(set(found.names) - set(self._columns.names)):
            return None
        arrays = [_fitted(table[column.name], column.type) for column in self._columns]
        arrays = spread(arrays, values)
        return Decoded(add_metadata(arrays, self._columns, batch, None), (), more)

    def _decode_slowly(self, batch: pa.RecordBatch) -> Decoded:
        decoded = decode_rows(batch, self._columns, self._read)
        if not self._evolve:
            return decoded
        rejected = {each.row for each in decoded.rejected}
        seen = self._columns
        for row, value in enumerate(batch.column("value").to_pylist()):
            try:
                found = infer([value])
            except (pa.ArrowInvalid, ValueError, RecursionError):
                continue
            if row not in rejected:  # it fits: a date that reads as a time is no reason to widen
                found = pa.schema([f for f in found if not self._holds(f.name, f.type)])
            seen = merge(seen, found)
        return Decoded(decoded.rows, decoded.rejected, self._wider(seen))

    def _read(self, value: bytes) -> Fields:
        found = _read_object(value)
        if self._evolve:
            _check_depth(found, _DEEPEST)
            self._check_fixed(value)
            for name in found:
                if not self._are_free({name} - set(self._columns.names)):
                    taken = self._taken[name.casefold()]
                    raise ValueError(f"field {name}: there is a column {taken} already")
        return found

    def _check_fixed(self, value: bytes) -> None:
        """Raise ValueError for a value that needs a wider type of a column that cannot be
        widened.
        """
        found = infer([value]) if self._fixed else pa.schema([])
        for name in self._fixed & set(found.names):
            known = self._columns.field(name).type
            if (wider(known, found.field(name).type) or known) != known:
                raise ValueError(f"column {name} stays {known}")

    def _are_free(self, names: Iterable[str]) -> bool:
        return not any(name.casefold() in self._taken for name in names)

    def _holds(self, name: str, kind: pa.DataType) -> bool:
        """Tell whether a value of ``kind`` loses nothing in the column of that name."""
        index = self._columns.get_field_index(name)
        return index >= 0 and not pa.types.is_nested(kind)

    def _wider(self, seen: pa.Schema) -> pa.Schema | None:
        """Return the columns widened for ``seen``; None if the present ones suffice."""
        known = self._columns
        possible = [
            each
            for each in seen
            if each.name not in self._fixed
            and (known.get_field_index(each.name) >= 0 or self._are_free([each.name]))
        ]
        more = one_of_each_name(merge(known, pa.schema(possible)))
        return more if any(changed_columns(known, more)) else None


def infer(values: list[bytes | None]) -> pa.Schema:
    """Return the columns for these objects; ValueError if one of them is not an object."""
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


def large_numbers(value: bytes) -> set[str]:
    """Return the fields of an object that are 64-bit integers which may not be exact as doubles."""
    return {
        name
        for name, each in _read_object(value).items()
        if type(each) is int and MOST_EXACT < abs(each) < 2**63
    }


def _seems_too_deep(value: bytes) -> bool:
    """Tell whether brackets may be nested deeper than allowed; those in strings count too.

    Arrow's reader takes a time that grows faster than the square of the depth: half a minute for
    20 KB of brackets. Few values have so many of them that each has to be looked at.
    """
    if value.count(b"[") + value.count(b"{") <= _DEEPEST:
        return False
    steps = _STEPS[np.frombuffer(value, np.uint8)]
    return int(np.cumsum(steps, dtype=np.int64).max()) > _DEEPEST + 1


def _lines(values: list[bytes | None]) -> bytes | None:
    """Return the objects as lines with their rows' numbers; None unless all begin as objects and
    none is nested too deep.
    """
    lines = []
    for row, value in enumerate(values):
        if value is None:
            continue
        body = value.lstrip()
        if not body.startswith(b"{") or _seems_too_deep(body):
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


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_depth(each, left - 1)


def _has_rounded(table: pa.Table, columns: pa.Schema) -> bool:
    """Tell whether a column of doubles may hold whole numbers that doubles do not hold exactly."""
    for column in columns:
        if pa.types.is_float64(column.type):
            ends = pc.min_max(table[column.name])
            if any((ends[end].as_py() or 0.0) * sign >= MOST_EXACT for end, sign in _ENDS):
                return True
    return False


def _fitted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """Return a column with the table's type, without further fields in structs."""
    array = column.combine_chunks()
    return array if array.type == kind else pa.array(array.to_pylist(), kind)


def _plain(schema: pa.Schema, left: int = _DEEPEST) -> pa.Schema:
    """Return inferred types as tables keep them: times in UTC; fields without a type yet are left
    out.

    ValueError if nested too deep.
    """
    kinds = [(field, _plain_type(field.type, left)) for field in schema]
    return pa.schema([field.with_type(kind) for field, kind in kinds if kind is not None])


def _plain_type(kind: pa.DataType, left: int) -> pa.DataType | None:
    if left < 0:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        known = _plain(pa.schema(list(kind)), left - 1)
        return pa.struct(list(known)) if len(known) else None
    if pa.types.is_list(kind):
        item = _plain_type(kind.value_type, left - 1)
        return None if item is None else pa.list_(item)
    return kind
