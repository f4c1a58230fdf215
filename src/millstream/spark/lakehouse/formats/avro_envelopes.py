"""debezium, where values and keys name their schemas: envelopes in Avro, as columns.

::

    {"before": ROW | null, "after": ROW | null, "op": "c" | "u" | "r" | "d" | "t", "source": …}

An envelope is read as a record with its own writer's schema (`framed`); the rest is done on the
columns ``before``, ``after`` and ``op``. A deleted row's key is in the row or in the record's key,
an Avro record that names its schema too. What an envelope means, and what is said of one that means
nothing, is the same as in JSON (`debezium`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ConfigError
from millstream.schemas.registry import open_registry
from millstream.spark.lakehouse.formats import debezium
from millstream.spark.lakehouse.formats.debezium import CHANGE, DELETE, TRUNCATE, UPSERT
from millstream.spark.lakehouse.formats.format import (
    METADATA,
    Decoded,
    Format,
    FormatSpec,
    Rejected,
    with_metadata,
)
from millstream.spark.lakehouse.formats.framed import FramedFormat
from millstream.spark.lakehouse.formats.frames import Framed, read_frames
from millstream.spark.lakehouse.formats.registered import (
    NotThisSchemaError,
    definition,
    place_of,
    reading,
)

_BEFORE: Final = "before"
_AFTER: Final = "after"
_OP: Final = "op"

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def row_columns(envelope: pa.Schema) -> pa.Schema:
    """Return the columns of the rows in envelopes of a schema; ConfigError for another one."""
    index = envelope.get_field_index(_AFTER)
    if index < 0 or not pa.types.is_struct(envelope.field(index).type):
        raise ConfigError(
            "the schema is no envelope of Debezium: it has no row in a field after (format avro "
            "reads rows without an envelope)"
        )
    return pa.schema(list(envelope.field(index).type))


class AvroEnvelopes:
    """Envelopes to rows of a table with a key."""

    def __init__(self, spec: FormatSpec, key: Sequence[str]) -> None:
        self._columns = spec.columns
        self._key = tuple(name for name in key if spec.columns.get_field_index(name) >= 0)
        self._rejects_truncate = spec.options.get("truncate") == "reject"
        row = pa.struct(list(spec.columns))
        self._inner = FramedFormat(
            replace(
                spec,
                kind="avro",
                columns=pa.schema([(_BEFORE, row), (_AFTER, row), (_OP, pa.string())]),
                options={n: text for n, text in spec.options.items() if n == "evolve"},
            ),
            rows_in=_AFTER,
        )
        place = place_of(spec)
        assert place is not None  # or the format before has raised
        self._registry = open_registry(place)
        self._keys: dict[object, Format | None] = {}

    def table_schema(self) -> pa.Schema:
        """Return the columns of the rows and of the records' positions."""
        return with_metadata(self._columns)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read every envelope; the rows have ``_change`` besides the table's columns."""
        found = self._inner.decode(batch)
        rejected = {each.row: each.reason for each in found.rejected}
        kept = np.setdiff1d(np.arange(len(batch)), list(rejected), assume_unique=True)
        changes = _Changes(found.rows, batch.column("value").take(pa.array(kept)))
        changes.check(self._key, rejects_truncate=self._rejects_truncate)
        keys = self._deleted_keys(changes, batch, kept)
        rejected |= {int(kept[place]): why for place, why in changes.reasons.items()}
        good = np.setdiff1d(np.arange(len(kept)), list(changes.reasons), assume_unique=True)
        is_upsert = pa.array(changes.kinds == UPSERT)
        after = dict(zip(self._columns.names, changes.after.flatten(), strict=True))
        arrays = [
            pc.if_else(is_upsert, after[each.name], keys.get(each.name, _nothing(each.type)))
            for each in self._columns
        ]
        rows = pa.RecordBatch.from_arrays(
            [*arrays, *found.rows.select(METADATA.names).columns, pa.array(changes.kinds)],
            schema=self.table_schema().append(pa.field(CHANGE, pa.int8())),
        )
        return Decoded(
            rows.take(pa.array(good)),
            [Rejected(row, rejected[row]) for row in sorted(rejected)],
            found.wider,
        )

    def _deleted_keys(
        self, changes: _Changes, batch: pa.RecordBatch, kept: np.ndarray
    ) -> dict[str, pa.Array]:
        """Return the key columns of deleted rows, null elsewhere; notes where there is no key."""
        is_delete = changes.kinds == DELETE
        before = dict(zip(self._columns.names, changes.before.flatten(), strict=True))
        keys = {
            name: pc.if_else(pa.array(is_delete), before[name], _nothing(before[name].type))
            for name in self._key
        }
        lacking = is_delete & _any(pc.is_null(each) for each in keys.values())
        if lacking.any():
            places = np.flatnonzero(lacking)
            of_records = self._record_keys(batch.take(pa.array(kept[places])))
            for name, each in keys.items():
                other = pc.coalesce(each.take(pa.array(places)), of_records[name])
                keys[name] = pc.replace_with_mask(each, pa.array(lacking), other)
        for place in np.flatnonzero(is_delete & _any(pc.is_null(e) for e in keys.values())):
            missing = [name for name, each in keys.items() if not each[place].is_valid]
            changes.reasons[int(place)] = debezium.without_key(missing)
        return keys

    def _record_keys(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Return the key columns of the records' own keys, null where they lack one."""
        wanted = pa.schema([self._columns.field(name) for name in self._key])
        frames = read_frames(batch, has_indexes=False, is_key=True)
        parts = [wanted.empty_table()]
        places: list[int] = []
        for group in frames.groups:
            form = self._key_format(group, wanted)
            if form is None:
                continue
            index = batch.schema.get_field_index("value")
            part = batch.take(pa.array(group.rows)).set_column(index, "value", group.data)
            found = form.decode(part)
            gone = [each.row for each in found.rejected]
            places += np.delete(group.rows, gone).tolist()
            parts.append(pa.Table.from_batches([found.rows.select(wanted.names)]))
        order = np.full(len(batch), -1, np.int64)
        order[places] = np.arange(len(places))
        rows = pa.concat_tables(parts).take(pa.array(order, mask=order < 0))
        return {name: rows[name].combine_chunks() for name in wanted.names}

    def _key_format(self, group: Framed, wanted: pa.Schema) -> Format | None:
        """Return what reads keys of a schema, None where it is not that of a record."""
        from millstream.spark.lakehouse.formats import make_format

        if group.key not in self._keys:
            try:
                found = definition(self._registry, group.key, group.indexes, "avro")
                spec = FormatSpec(kind="avro", columns=wanted)
                self._keys[group.key] = make_format(reading(spec, found))
            except (NotThisSchemaError, ConfigError):
                self._keys[group.key] = None
        return self._keys[group.key]


class _Changes:
    """What each envelope of a batch does."""

    def __init__(self, rows: pa.RecordBatch, values: pa.Array) -> None:
        self.before, self.after = rows.column(_BEFORE), rows.column(_AFTER)
        self.reasons: dict[int, str] = {}
        self._op = rows.column(_OP)
        self._is_null = _to_numpy(pc.is_null(values))
        self._is_row = ~self._is_null & self._is_op(*debezium.ROW_OPS)
        self.kinds = np.full(len(rows), UPSERT, np.int8)
        self.kinds[self._is_null | self._is_op("d")] = DELETE
        self.kinds[~self._is_null & self._is_op("t")] = TRUNCATE

    def check(self, key: Sequence[str], *, rejects_truncate: bool) -> None:
        """Note why envelopes change no row, the first reason of each."""
        self._note(~self._is_null & _to_numpy(pc.is_null(self._op)), lambda _: debezium.WITHOUT_OP)
        is_known = self._is_row | (self.kinds != UPSERT)
        self._note(~is_known, lambda place: debezium.of_no_row(json.dumps(self._op[place].as_py())))
        is_absent = _to_numpy(pc.is_null(self.after))
        self._note(
            self._is_row & is_absent, lambda place: debezium.without_row(self._op[place].as_py())
        )
        self._check_key(key)
        self._check_logged()
        if rejects_truncate:
            self._note(self.kinds == TRUNCATE, lambda _: debezium.REJECTED_TRUNCATE)

    def _check_key(self, key: Sequence[str]) -> None:
        names = [each.name for each in self.after.type]
        old = dict(zip(names, self.before.flatten(), strict=True))
        new = dict(zip(names, self.after.flatten(), strict=True))
        is_update = ~self._is_null & self._is_op("u")
        differs = {
            name: _to_numpy(pc.is_valid(old[name])) & ~_to_numpy(pc.equal(old[name], new[name]))
            for name in key
        }
        for name in key:
            self._note(
                is_update & differs[name],
                lambda place: debezium.other_key([n for n in key if differs[n][place]]),
            )

    def _check_logged(self) -> None:
        columns = dict(
            zip((each.name for each in self.after.type), self.after.flatten(), strict=True)
        )
        unlogged = {
            name: _to_numpy(pc.equal(each, pa.scalar(debezium.UNAVAILABLE).cast(each.type)))
            for name, each in columns.items()
            if pa.types.is_string(each.type) or pa.types.is_binary(each.type)
        }
        for found in unlogged.values():
            self._note(
                self._is_row & found,
                lambda place: debezium.not_logged([n for n in unlogged if unlogged[n][place]]),
            )

    def _is_op(self, *ops: str) -> Mask:
        return _to_numpy(pc.is_in(self._op, value_set=pa.array(sorted(ops), pa.string())))

    def _note(self, which: Mask, why: Callable[[int], str]) -> None:
        for place in np.flatnonzero(which).tolist():
            self.reasons.setdefault(place, why(place))


def _nothing(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind)


def _any(masks: Any) -> Mask:
    found: Mask = np.logical_or.reduce([_to_numpy(each) for each in masks])
    return found


def _to_numpy(mask: pa.Array) -> Mask:
    """Return a mask; false where it is null."""
    found: Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return found
