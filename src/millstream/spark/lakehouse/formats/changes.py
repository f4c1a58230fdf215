"""Records as changes of a table of the present: a format whose rows have ``_change`` besides.

``_change`` is 0 for a row that takes the place of the one with its key, 1 for a key whose row is
deleted, 2 for the deletion of all rows before (Debezium's truncate). A record with a null value (a
tombstone) deletes. Every row but that of a truncate has a key: records without one are rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats import FormatSpec, make_format
from millstream.spark.lakehouse.formats.debezium import (
    CHANGE,
    DELETE,
    REJECTED_TRUNCATE,
    TRUNCATE,
    UPSERT,
    Change,
    key_row,
    read_envelope,
)
from millstream.spark.lakehouse.formats.envelopes import EnvelopeReader
from millstream.spark.lakehouse.formats.format import Decoded, Rejected, reason_of

_OWN_KEYS: Final = frozenset({"_key", "key"})
"""Columns of the records' keys, which tombstones have too."""


def check_key(schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise ConfigError unless these columns of a table can identify its rows."""
    for name in key:
        if schema.get_field_index(name) < 0:
            raise ConfigError(
                f"the key {name} is not a column of the table; columns: {', '.join(schema.names)}"
            )
        kind = schema.field(name).type
        if pa.types.is_floating(kind) or pa.types.is_nested(kind):
            raise ConfigError(
                f"the key {name} is a column of type {kind}: rows are identified by texts, bytes, "
                "whole numbers, decimals, dates, times and booleans (a schema file sets the type)"
            )
    if schema.get_field_index(CHANGE) >= 0:
        raise ConfigError(f"a column named {CHANGE} is the load's own")


class ChangeFormat:
    """A format, and what each of its records does to a table with this key."""

    def __init__(self, spec: FormatSpec, key: Sequence[str]) -> None:
        self._inner = make_format(spec, key)
        self._key = tuple(key)
        self._is_told = spec.kind == "debezium" and spec.is_framed
        self._rejects_truncate = spec.options.get("truncate") == "reject"
        schema = self._inner.table_schema()
        self._schema = schema.append(pa.field(CHANGE, pa.int8()))
        self._texts = frozenset(n for n in key if pa.types.is_string(schema.field(n).type))
        self._read = None if self._is_told else self._reader(spec.kind)
        self._columns = (
            None
            if self._read is None
            else EnvelopeReader.make(self._key, tombstones_only=spec.kind != "debezium")
        )

    def _reader(self, kind: str) -> Callable[[bytes | None, bytes | None], Change] | None:
        """Return what reads single records; None if only null values delete, by the record's own
        key.
        """
        if kind == "debezium":
            return lambda value, key: read_envelope(value, key, self._key, self._texts)
        if kind == "json" and not set(self._key) <= _OWN_KEYS:
            return self._read_tombstone
        return None

    def _read_tombstone(self, value: bytes | None, key: bytes | None) -> Change:
        if value is not None:
            return Change(UPSERT, value)
        return Change(DELETE, key_row(None, key, self._key, self._texts))

    def table_schema(self) -> pa.Schema:
        """Return the table's columns and ``_change``."""
        return self._schema

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Read the records of a batch of the source."""
        if self._is_told:
            return self._with_keys_alone(batch, self._inner.decode(batch))
        values, changes, rejected = self._changes(batch)
        kept = np.setdiff1d(np.arange(len(batch)), list(rejected), assume_unique=True)
        inner = batch
        if values is not None:
            inner = batch.set_column(batch.schema.get_field_index("value"), "value", values)
        if rejected:
            inner = inner.take(pa.array(kept))
        decoded = self._inner.decode(inner)
        for each in decoded.rejected:
            rejected[int(kept[each.row])] = each.reason
        left = np.ones(len(kept), bool)
        left[[each.row for each in decoded.rejected]] = False
        kept = kept[left]
        rows = decoded.rows
        has_key = self._has_key(rows) | (changes[kept] == TRUNCATE)
        if not has_key.all():
            for row in kept[~has_key]:
                rejected[int(row)] = self._without_key
            rows, kept = rows.filter(pa.array(has_key)), kept[has_key]
        arrays = [*rows.columns, pa.array(changes[kept], pa.int8())]
        return Decoded(
            pa.RecordBatch.from_arrays(arrays, schema=self._schema),
            [Rejected(row, rejected[row]) for row in sorted(rejected)],
            decoded.wider,
        )

    def _with_keys_alone(self, batch: pa.RecordBatch, decoded: Decoded) -> Decoded:
        """Return rows that say themselves what they change, without those that have no key."""
        rows = decoded.rows
        is_sound = self._has_key(rows) | (rows.column(CHANGE).to_numpy() == TRUNCATE)
        gone = [each.row for each in decoded.rejected]
        kept = np.setdiff1d(np.arange(len(batch)), gone, assume_unique=True)
        rejected = [*decoded.rejected]
        rejected += [Rejected(int(row), self._without_key) for row in kept[~is_sound]]
        rejected.sort(key=lambda each: each.row)
        return Decoded(rows.filter(pa.array(is_sound)), rejected, decoded.wider)

    @property
    def _without_key(self) -> str:
        return f"there is no key: {', '.join(self._key)} is null"

    def _has_key(self, rows: pa.RecordBatch) -> np.ndarray:
        found = np.ones(len(rows), bool)
        for name in self._key:
            found &= pc.is_valid(rows.column(name)).to_numpy(zero_copy_only=False)
        return found

    def _changes(self, batch: pa.RecordBatch) -> tuple[pa.Array | None, np.ndarray, dict[int, str]]:
        """Return the values that the inner format reads (None: as they are), the changes, and the
        rows that cannot be read.
        """
        column = batch.column("value")
        is_null = pc.is_null(column).to_numpy(zero_copy_only=False)
        changes = np.where(is_null, DELETE, UPSERT).astype(np.int8)
        rejected: dict[int, str] = {}
        if self._read is None or (self._read == self._read_tombstone and not is_null.any()):
            return None, changes, rejected
        rows, is_left = pa.nulls(len(batch), pa.binary()), np.ones(len(batch), bool)
        if self._columns is not None:
            taken = self._columns.read(column, batch.column("key"))
            rows, changes, is_left = taken.rows, taken.kinds, taken.is_left
        if is_left.any():
            left = np.flatnonzero(is_left)
            found = self._read_singly(batch.take(pa.array(left)), left, changes, rejected)
            rows = pc.replace_with_mask(rows, pa.array(is_left), found)
        return rows, changes, rejected

    def _read_singly(
        self, batch: pa.RecordBatch, rows: np.ndarray, changes: np.ndarray, rejected: dict[int, str]
    ) -> pa.Array:
        """Read records one by one; ``rows`` are their rows in ``changes`` and ``rejected``, which
        are filled in.
        """
        assert self._read is not None
        values: list[bytes | None] = []
        pairs = zip(batch.column("value").to_pylist(), batch.column("key").to_pylist(), strict=True)
        for row, (value, key) in zip(rows.tolist(), pairs, strict=True):
            try:
                change = self._read(value, key)
            except (ValueError, RecursionError) as error:
                rejected[row] = reason_of(error)
                values.append(None)
                continue
            changes[row] = change.kind
            values.append(change.row)
            if change.kind == TRUNCATE and self._rejects_truncate:
                rejected[row] = REJECTED_TRUNCATE
        return pa.array(values, pa.binary())
