"""Values that name their schemas: each is read with the schema that it was written with.

A batch is divided by schema (`frames`), each part is read by the plain format with that schema
(`registered`), and the rows are put back in their order. Columns are matched by name. A field that
the table lacks is reported to the driver (option ``evolve``), which adds the column by the rules of
the table's kind; the batch is then read again. A type that the column does not hold makes those
records dead letters that it does not fit.

A registry that cannot be asked ends the task with its error: nothing is rejected for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.schemas.registry import open_registry
from millstream.schemas.schema import named
from millstream.spark.lakehouse.formats.format import (
    METADATA,
    Decoded,
    Format,
    FormatSpec,
    Rejected,
    add_metadata,
    with_metadata,
)
from millstream.spark.lakehouse.formats.frames import Framed, read_frames
from millstream.spark.lakehouse.formats.registered import (
    NotThisSchemaError,
    columns_of,
    definition,
    place_of,
    reading,
)
from millstream.spark.lakehouse.widening import changed_columns, merge

_MOST_READERS: Final = 1_000


class FramedFormat:
    """A format whose values name their schemas.

    The table's columns are the fields of the records, or those of the records' field ``rows_in``.
    """

    def __init__(self, spec: FormatSpec, *, rows_in: str = "") -> None:
        place = place_of(spec)
        if place is None:
            raise ConfigError(
                "values that name their schemas need a registry (--schema-registry URL or FILE), "
                "or the option schema_id"
            )
        if not len(spec.columns) and spec.definition:
            spec = replace(spec, columns=_defined_columns(spec))
        self._spec = spec
        self._columns = spec.columns
        self._registry = open_registry(place)
        self._evolves = spec.option("evolve", "true") == "true" and not spec.definition
        own = {*METADATA.names, *spec.reserved}
        self._rows_in = rows_in
        self._held = _rows(spec.columns, rows_in)
        self._taken = {name.casefold(): name for name in (*own, *self._held.names)}
        self._readers: dict[object, tuple[Format, pa.Schema | None] | str] = {}

    def table_schema(self) -> pa.Schema:
        """Return the columns of the fields and of the records' positions."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every value. Raises RegistryAwayError and RegistryRefusedError."""
        frames = read_frames(batch, has_indexes=self._spec.kind == "protobuf")
        rejected = list(frames.rejected)
        wider: pa.Schema | None = None
        parts: list[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pa.RecordBatch]] = []
        for group in frames.groups:
            found = self._decode(batch, group)
            rejected += found.rejected
            gone = [each.row for each in found.rejected]
            kept = np.setdiff1d(group.rows, gone, assume_unique=True) if gone else group.rows
            parts.append((kept, found.rows))
            if found.wider is not None:
                wider = found.wider if wider is None else merge(wider, found.wider)
        if len(frames.nulls):
            nulls = [pa.nulls(len(frames.nulls), each.type) for each in self._columns]
            rows = pa.array(frames.nulls)
            parts.append((frames.nulls, add_metadata(nulls, self._columns, batch, rows)))
        rejected.sort(key=lambda each: each.row)
        return Decoded(_in_order(parts, self.table_schema()), rejected, wider)

    def _decode(self, batch: pa.RecordBatch, group: Framed) -> Decoded:
        reader = self._reader(group)
        if isinstance(reader, str):
            nothing = batch.slice(0, 0)
            empty = [pa.nulls(0, each.type) for each in self._columns]
            return Decoded(
                add_metadata(empty, self._columns, nothing, None),
                [Rejected(int(row), reader) for row in group.rows],
            )
        form, wider = reader
        whole = len(group.rows) == len(batch)
        part = batch if whole else batch.take(pa.array(group.rows))
        index = part.schema.get_field_index("value")
        found = form.decode(part.set_column(index, part.schema.field(index), group.data))
        if found.wider is not None:  # of JSON, whose values may have more than their schema says
            wider = found.wider if wider is None else merge(wider, found.wider)
        rejected = [Rejected(int(group.rows[each.row]), each.reason) for each in found.rejected]
        return Decoded(_with_columns(found.rows, self.table_schema()), rejected, wider)

    def _reader(self, group: Framed) -> tuple[Format, pa.Schema | None] | str:
        """Return the format of a schema and the columns that the table lacks for it, or why its
        records are rejected.
        """
        place = (group.key, group.indexes)
        if place not in self._readers:
            if len(self._readers) >= _MOST_READERS:
                self._readers.clear()
            self._readers[place] = self._make_reader(group)
        return self._readers[place]

    def _make_reader(self, group: Framed) -> tuple[Format, pa.Schema | None] | str:
        from millstream.spark.lakehouse.formats import make_format

        spec = self._spec
        try:
            found = definition(self._registry, group.key, group.indexes, spec.kind)
        except NotThisSchemaError as error:
            return str(error)
        try:
            wider = self._wider(columns_of(found)) if self._evolves else None
            if wider is not None and spec.is_read_again and spec.kind != "json":
                spec = replace(spec, columns=self._unchanged(wider))
            return make_format(reading(spec, found)), wider
        except (NotThisSchemaError, ConfigError) as error:
            return f"{named(group.key)}: {error}"

    def _wider(self, own: pa.Schema) -> pa.Schema | None:
        """Return the columns widened for a schema's own; None if the present ones suffice.

        NotThisSchemaError for a field that cannot be a column, because of its name.
        """
        own = _rows(own, self._rows_in)
        seen = dict(self._taken)
        for name in own.names:
            if self._held.get_field_index(name) >= 0:
                continue
            if name.casefold() in seen:
                taken = seen[name.casefold()]
                raise NotThisSchemaError(f"field {name}: there is a column {taken} already")
            seen[name.casefold()] = name
        possible = pa.schema([each for each in own if each.name not in self._spec.fixed])
        more = merge(self._held, possible)
        return more if any(changed_columns(self._held, more)) else None

    def _unchanged(self, wider: pa.Schema) -> pa.Schema:
        """Return the columns whose types stay as they are. Those that get a wider one hold few of
        a schema's values, which could only be read one by one.
        """
        changed = {each.name for each in changed_columns(self._held, wider)[1]}
        kept = [each for each in self._held if each.name not in changed]
        if not self._rows_in:
            return pa.schema(kept) if kept else self._columns
        is_row = {pa.struct(list(self._held)): pa.struct(kept)}
        return pa.schema([e.with_type(is_row.get(e.type, e.type)) for e in self._columns])


def _with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of ``schema``, and the fields in them; null where they lack
    one.
    """
    if rows.schema == schema:
        return rows
    held = dict(zip(rows.schema.names, rows.columns, strict=True))
    arrays = [_with_type(held.get(each.name), each.type, len(rows)) for each in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_type(array: pa.Array | None, kind: pa.DataType, count: int) -> pa.Array:
    if array is None:
        return pa.nulls(count, kind)
    if array.type == kind:
        return array
    held = dict(zip((each.name for each in array.type), array.flatten(), strict=True))
    fields = [_with_type(held.get(each.name), each.type, count) for each in kind]
    return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())


def _rows(columns: pa.Schema, field: str) -> pa.Schema:
    """Return the columns in a field of records; no column if it is none that has any."""
    if not field:
        return columns
    index = columns.get_field_index(field)
    kind = pa.null() if index < 0 else columns.field(index).type
    return pa.schema(list(kind) if pa.types.is_struct(kind) else [])


def _defined_columns(spec: FormatSpec) -> pa.Schema:
    from millstream.spark.lakehouse.formats import avro, protobuf

    if spec.kind == "avro":
        return avro.columns_of(spec.definition)
    return protobuf.columns_of(spec.definition, spec.option("message"))


def _in_order(
    parts: Sequence[tuple[np.ndarray[tuple[int], np.dtype[np.int64]], pa.RecordBatch]],
    schema: pa.Schema,
) -> pa.RecordBatch:
    """Return the rows of all parts in the order of their places in the batch."""
    if len(parts) == 1:
        return parts[0][1]
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=schema)
    places = np.concatenate([places for places, _ in parts])
    rows = pa.concat_batches([rows for _, rows in parts])
    return rows.take(pa.array(np.argsort(places, kind="stable")))
