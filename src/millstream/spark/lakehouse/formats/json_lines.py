"""json: each value is one JSON object; its fields become columns by name.

The kernel writes columns of the objects that fit them (``native/json_columns.c``). Of those that
it leaves it finds the values that are no objects, or have a field that is not of its column's kind,
and makes lines of the others, which Arrow's own reader parses at once. What that does not take is
left out, and the rest is read in parts around it. Numbers that only a wider column holds are read
together, too; they are rejected, and the wider column is told. All that was left out is read value
by value. Without the kernel, a batch is read in smaller and smaller parts. A field that the schema
lacks is either left out (option ``evolve`` false) or reported to the driver, which adds the column
and reads again; the same applies to a number that needs a wider type. A field that has only been
null or an empty list or object so far has no type and gets no column yet. A field whose name is
already that of a column, in another case or as one of the table's own, cannot become a column: its
record is rejected. Times: see ``times``; decimals: see ``decimals``. A map, which a schema file may
have, takes an object.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.records import json_kernel, kernel
from millstream.records.json_columns_kernel import JsonColumns, json_columns_library
from millstream.records.json_kernel import LineMaker, Lines
from millstream.spark.lakehouse.formats.compiled import with_left_ones
from millstream.spark.lakehouse.formats.decimals import are_in_range
from millstream.spark.lakehouse.formats.fitting import fit, without_integers
from millstream.spark.lakehouse.formats.format import (
    METADATA,
    MOST_EXACT,
    Decoded,
    Fields,
    FormatSpec,
    Rejected,
    add_metadata,
    decode_in_parts,
    decode_rows,
    spread,
    with_metadata,
)
from millstream.spark.lakehouse.formats.json_values import (
    DEEPEST,
    check_depth,
    contains,
    converted,
    has_kind,
    infer,
    plain,
    read_object,
)
from millstream.spark.lakehouse.widening import changed_columns, merge, one_of_each_name, wider

_ROW: Final = f"row {secrets.token_hex(16)}"
"""A field that is inserted first into each object, so that a row of the result identifies its
value. Nobody who writes values can know it, and so none ends early and begins another row.
"""
_SPACE: Final = b" \t\r\n"
"""What JSON takes for space; Python strips more."""

_STEPS: Final = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_ENDS: Final = (("min", -1), ("max", 1))
_PARTS: Final = 8
_WINDOW: Final = 512
"""Rows that are read at once where Arrow's reader does not take a batch as a whole."""
_WAITS: Final = "a number needs a wider type of its column"
_FAILED_ROW: Final = re.compile(r"in row (\d+)")


@dataclass(frozen=True, slots=True)
class _Checked:
    """The columns of values that were read together."""

    arrays: Sequence[pa.Array]
    wider: pa.Schema | None
    fits: np.ndarray[Any, np.dtype[np.bool_]] | None = None
    """Where false, a row's values need the wider columns; None: they need them nowhere."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Values that were read together: their rows in the batch, and their columns."""

    rows: np.ndarray[Any, np.dtype[np.int64]]
    arrays: Sequence[pa.Array]
    wider: pa.Schema | None
    rejected: Sequence[Rejected] = ()

    @classmethod
    def of(cls, rows: np.ndarray[Any, np.dtype[np.int64]], read: _Checked) -> _Part:
        """Leave the rows out that need wider columns."""
        if read.fits is None:
            return cls(rows, read.arrays, read.wider)
        fits = pa.array(read.fits)
        rejected = [Rejected(row, _WAITS) for row in rows[~read.fits].tolist()]
        return cls(rows[read.fits], [e.filter(fits) for e in read.arrays], read.wider, rejected)


class JsonFormat:
    """Objects to rows."""

    def __init__(self, spec: FormatSpec) -> None:
        self._columns = spec.columns
        self._has_maps = any(contains(each.type, pa.types.is_map) for each in spec.columns)
        self._decimals = [e.name for e in spec.columns if contains(e.type, pa.types.is_decimal)]
        self._converted = [each for each in spec.columns if contains(each.type, _is_converted)]
        self._evolve = spec.option("evolve", "true") == "true"
        self._fixed = spec.fixed
        self._open = spec.columns  # without the types that values may widen
        if self._evolve:
            kinds_left = [
                (each, each.type if each.name in spec.fixed else without_integers(each.type))
                for each in spec.columns
            ]
            self._open = pa.schema([e.with_type(k) for e, k in kinds_left if k is not None])
        own = {*METADATA.names, *spec.reserved}
        self._taken = {name.casefold(): name for name in (*own, *spec.columns.names)}
        self._direct = _direct(spec.columns, skip_unknown=not self._evolve)
        library = kernel.library()
        self._makers: tuple[LineMaker, LineMaker] | None = None
        if library is not None and not self._has_maps:
            kinds = {each.name: _kinds(each.type) for each in spec.columns}
            wide = {
                name: kind | json_kernel.FRACTION
                if kind == json_kernel.INTEGER and name not in self._fixed
                else kind
                for name, kind in kinds.items()
            }
            self._makers = (
                LineMaker(library, kinds, most_deep=DEEPEST),
                LineMaker(library, wide, most_deep=DEEPEST),
            )

    def table_schema(self) -> pa.Schema:
        """Return the columns of the fields and of the records' positions."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every object."""
        if self._direct is None or not len(batch):
            return self._decode_all(batch)
        found = self._direct.read(batch.column("value"))
        return with_left_ones(found.arrays, found.left, batch, self._columns, self._decode_all)

    def _decode_all(self, batch: pa.RecordBatch) -> Decoded:
        if self._has_maps:  # which Arrow's reader does not know
            return self._decode_slowly(batch)
        if self._makers is not None:
            return self._decode_lines(batch, *self._makers)
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
            table = self._parse(lines, pa.schema([(_ROW, pa.int32()), *self._columns]))
        except (pa.ArrowInvalid, ValueError):
            return None
        expected = [row for row, value in enumerate(values) if value is not None]
        if table.num_rows != len(expected) or table[_ROW].to_pylist() != expected:
            return None
        read = self._checked(table)
        if read is None:
            return None
        arrays = spread(read.arrays, values)
        if read.fits is None:
            return Decoded(add_metadata(arrays, self._columns, batch, None), (), read.wider)
        part = _Part.of(np.array(expected, np.int64), read)
        gone = {each.row for each in part.rejected}
        kept = pa.array([row for row in range(len(values)) if row not in gone], pa.int64())
        arrays = [each.take(kept) for each in arrays]
        return Decoded(add_metadata(arrays, self._columns, batch, kept), part.rejected, read.wider)

    def _parse(self, lines: Any, columns: pa.Schema) -> pa.Table:
        """Read lines. ArrowInvalid for those that do not fit the columns."""
        return pj.read_json(
            pa.py_buffer(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines), 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=columns,
                unexpected_field_behavior="infer" if self._evolve else "ignore",
                newlines_in_values=_ROW in columns.names,
            ),
        )

    def _checked(self, table: pa.Table) -> _Checked | None:
        """Return the table's columns of what was read, and further ones that it needs; None if
        there is a value among them that has to be read by itself.
        """
        for name in set(self._columns.names).difference(table.column_names):
            table = table.append_column(name, pa.nulls(len(table)))
        try:
            found = plain(
                table.drop_columns([n for n in (_ROW,) if n in table.column_names]).schema
            )
        except ValueError:
            return None
        if _has_rounded(table, self._columns):
            return None
        if any(table[name].type != self._columns.field(name).type for name in self._fixed):
            return None
        try:
            fitted = {each.name: fit(table[each.name], each.type) for each in self._columns}
            needed = {name: each.needed for name, each in fitted.items()}
            found = plain(
                pa.schema([each.with_type(needed.get(each.name, each.type)) for each in found])
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None
        if not all(are_in_range(fitted[name].values) for name in self._decimals):
            return None
        if not self._are_free(set(found.names) - set(self._columns.names)):
            return None
        more = self._wider(found)
        some = {name: each.fits for name, each in fitted.items() if each.fits is not None}
        if any(
            more is None or more.field(name).type == self._columns.field(name).type for name in some
        ):
            return None
        fits = np.logical_and.reduce(list(some.values())) if some else None
        return _Checked([each.values for each in fitted.values()], more, fits)

    # --- with the kernel -------------------------------------------------------------------------

    def _decode_lines(self, batch: pa.RecordBatch, checked: LineMaker, wide: LineMaker) -> Decoded:
        values = batch.column("value")
        lines = checked.lines(values)
        left_out = np.flatnonzero(lines.states).tolist()
        parts = list(self._read_parts(lines, np.arange(len(batch)), left_out))
        others = np.flatnonzero(lines.states == json_kernel.OTHER_KIND)
        if len(others) and self._evolve:
            # Apart from the others: whole numbers beside fractions would be read as doubles.
            lines = wide.lines(values.take(pa.array(others)))
            left_out = sorted(set(left_out).difference(others[lines.states == json_kernel.LINE]))
            parts += self._read_parts(lines, others, left_out)
        rejected = [each for part in parts for each in part.rejected]
        if left_out:
            parts.append(self._read_slowly(batch, sorted(left_out), rejected))
        rows = np.concatenate([part.rows for part in parts]) if parts else np.empty(0, np.int64)
        arrays = [
            pa.concat_arrays([part.arrays[index] for part in parts])
            if parts
            else pa.nulls(0, column.type)
            for index, column in enumerate(self._columns)
        ]
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            rows = rows[order]
            arrays = [array.take(pa.array(order)) for array in arrays]
        seen = None
        for part in parts:
            if part.wider is not None:
                seen = part.wider if seen is None else merge(seen, part.wider)
        kept = None if len(rows) == len(batch) else pa.array(rows)
        rejected.sort(key=lambda each: each.row)
        return Decoded(add_metadata(arrays, self._columns, batch, kept), rejected, seen)

    def _read_parts(
        self, lines: Lines, places: np.ndarray[Any, np.dtype[np.int64]], left_out: list[int]
    ) -> Iterator[_Part]:
        """Read lines with Arrow; add the rows that it does not take to ``left_out``.

        ``places`` are the rows in the batch of those that the lines are of.
        """
        good = np.flatnonzero(lines.states == json_kernel.LINE)
        waiting = [good] if len(good) else []
        while waiting:
            rows = waiting.pop()
            first, last = int(rows[0]), int(rows[-1])
            start = int(lines.starts[first])
            text = lines.text.slice(start, int(lines.starts[last + 1]) - start)
            read, failed = None, -1
            for columns in (self._columns, self._open):
                try:
                    table = self._parse(text, columns)
                    if table.num_rows == len(rows):
                        read = self._checked(table)
                except pa.ArrowInvalid as error:
                    told = _FAILED_ROW.search(str(error))
                    failed = int(told[1]) if told is not None else -1
                if read is not None or failed >= 0 or self._open == self._columns:
                    break
            if read is not None:
                yield _Part.of(places[rows], read)
            elif len(rows) == 1:
                left_out.append(int(places[first]))
            else:
                alone: list[int] = []
                waiting += _split(rows, failed, alone)
                left_out += places[alone].tolist()

    def _read_slowly(
        self, batch: pa.RecordBatch, rows: list[int], rejected: list[Rejected]
    ) -> _Part:
        decoded = self._decode_slowly(batch.take(pa.array(rows, pa.int64())))
        rejected += [Rejected(rows[each.row], each.reason) for each in decoded.rejected]
        gone = {each.row for each in rejected}
        kept = np.array([row for row in rows if row not in gone], np.int64)
        arrays = [decoded.rows.column(index) for index in range(len(self._columns))]
        return _Part(kept, arrays, decoded.wider)

    # --- value by value --------------------------------------------------------------------------

    def _decode_slowly(self, batch: pa.RecordBatch) -> Decoded:
        not_inferred: set[bytes] = set()

        def read(value: bytes) -> Fields:
            try:
                found = read_object(value, exact=True) if self._decimals else read_object(value)
                if self._evolve:
                    check_depth(found)
            except (ValueError, RecursionError):
                not_inferred.add(value)
                raise
            return self._fields_of(value, found)

        decoded = decode_rows(batch, self._columns, read)
        if not self._evolve:
            return decoded
        rejected = {each.row for each in decoded.rejected}
        seen = self._columns
        for row, value in enumerate(batch.column("value").to_pylist()):
            if value in not_inferred:
                continue
            try:
                found = infer([value])
            except (pa.ArrowInvalid, ValueError, RecursionError):
                continue
            if row not in rejected:  # it fits: a date that reads as a time is no reason to widen
                found = pa.schema([f for f in found if not self._holds(f.name, f.type)])
            seen = merge(seen, found)
        return Decoded(decoded.rows, decoded.rejected, self._wider(seen))

    def _fields_of(self, value: bytes, found: Fields) -> Fields:
        if self._evolve:
            self._check_fixed(value)
            for name, each in found.items():
                is_new = name not in self._columns.names and has_kind(each)
                if is_new and not self._are_free([name]):
                    taken = self._taken[name.casefold()]
                    raise ValueError(f"field {name}: there is a column {taken} already")
        if not self._converted:
            return found
        return {**found, **{e.name: converted(found, e) for e in self._converted}}

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


def _split(
    rows: np.ndarray[Any, np.dtype[np.int64]], failed: int, left_out: list[int]
) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Return parts of rows that were not taken together, the first one last."""
    if len(rows) > 2 * _WINDOW:
        parts = np.array_split(rows, -(-len(rows) // _WINDOW))
    elif 0 <= failed < len(rows):
        left_out.append(int(rows[failed]))
        parts = [rows[:failed], rows[failed + 1 :]]
    else:
        parts = np.array_split(rows, min(_PARTS, len(rows)))
    return [part for part in reversed(parts) if len(part)]


def _direct(columns: pa.Schema, *, skip_unknown: bool) -> JsonColumns | None:
    library = json_columns_library()
    if library is None:
        return None
    try:
        return JsonColumns(library, columns, skip_unknown=skip_unknown)
    except TypeError:
        return None


def _is_converted(kind: pa.DataType) -> bool:
    types = pa.types
    return any(each(kind) for each in (types.is_map, types.is_timestamp, types.is_decimal))


def _kinds(kind: pa.DataType) -> int:
    """Return the kinds of JSON values that a column takes from Arrow's reader."""
    if pa.types.is_integer(kind):
        return json_kernel.INTEGER
    if pa.types.is_floating(kind):
        return json_kernel.INTEGER | json_kernel.FRACTION
    if pa.types.is_boolean(kind):
        return json_kernel.BOOLEAN
    if pa.types.is_string(kind) or pa.types.is_timestamp(kind):
        return json_kernel.TEXT
    if pa.types.is_struct(kind):
        return json_kernel.OBJECT
    return json_kernel.LIST if pa.types.is_list(kind) else json_kernel.ANY


def _seems_too_deep(value: bytes) -> bool:
    """Tell whether brackets may be nested deeper than allowed; those in strings count too.

    Arrow's reader takes a time that grows faster than the square of the depth: half a minute for
    20 KB of brackets. Few values have so many of them that each has to be looked at.
    """
    if value.count(b"[") + value.count(b"{") <= DEEPEST:
        return False
    steps = _STEPS[np.frombuffer(value, np.uint8)]
    return int(np.cumsum(steps, dtype=np.int64).max()) > DEEPEST + 1


def _lines(values: list[bytes | None]) -> bytes | None:
    """Return the objects as lines with their rows' numbers; None unless all begin as objects and
    none is nested too deep.
    """
    lines = []
    for row, value in enumerate(values):
        if value is None:
            continue
        body = value.lstrip(_SPACE)
        if not body.startswith(b"{") or _seems_too_deep(body):
            return None
        rest = body[1:].lstrip(_SPACE)
        comma = b"" if rest.startswith(b"}") else b","
        lines.append(b'{"%s":%d%s%s' % (_ROW.encode(), row, comma, rest))
    return b"\n".join(lines)


def _has_rounded(table: pa.Table, columns: pa.Schema) -> bool:
    """Tell whether a column of doubles may hold whole numbers that doubles do not hold exactly."""
    for column in columns:
        if pa.types.is_float64(column.type):
            ends = pc.min_max(table[column.name])
            if any((ends[end].as_py() or 0.0) * sign >= MOST_EXACT for end, sign in _ENDS):
                return True
    return False
