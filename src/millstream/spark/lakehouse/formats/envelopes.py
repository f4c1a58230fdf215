"""Takes Debezium's envelopes apart as columns, without an object for each record.

The kernel cuts the texts of a few fields out of each value (``json_kernel.FieldReader``); what is
done with them is done on columns. A record that is unusual in any way is left to the functions of
``debezium``, which read single records and say what is wrong: so there is one wording of each
reason, and what becomes of a record does not depend on the records beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.records import kernel
from millstream.records.json_kernel import LINE, FieldReader
from millstream.spark.lakehouse.formats.debezium import (
    DELETE,
    ROW_OPS,
    UNAVAILABLE,
    UPSERT,
    WRAPPER,
)

Mask = np.ndarray[Any, np.dtype[np.bool_]]

_OP: Final = "op"
_SCHEMA, _PAYLOAD = WRAPPER
_BEFORE: Final = "before"
_AFTER: Final = "after"
_NULL: Final = pa.scalar(b"null", pa.binary())
_NOTHING: Final = pa.scalar(None, pa.binary())
_MOST_KEY_FIELDS: Final = 12
_ROW_OPS: Final = pa.array([json.dumps(op).encode() for op in sorted(ROW_OPS)], pa.binary())


@dataclass(frozen=True, slots=True)
class Taken:
    """The changes of a batch's records."""

    rows: pa.Array
    """The JSON objects that say which rows change, binary; null where ``is_left``."""
    kinds: np.ndarray[Any, np.dtype[np.int8]]
    is_left: Mask
    """Which records have to be read by themselves."""


class EnvelopeReader:
    """Reads envelopes of a table with this key; ``tombstones_only`` for values that are rows."""

    def __init__(
        self, library: kernel.Library, fields: Sequence[str], *, tombstones_only: bool
    ) -> None:
        self._fields = tuple(fields)
        self._tombstones_only = tombstones_only
        self._envelope = FieldReader(library, (_BEFORE, _AFTER, _OP, _PAYLOAD))
        self._row = FieldReader(library, self._fields)
        self._key = FieldReader(library, tuple(dict.fromkeys((*fields, *WRAPPER))))

    @classmethod
    def make(cls, fields: Sequence[str], *, tombstones_only: bool) -> EnvelopeReader | None:
        """Return a reader; None without the kernel, and for a key of very many columns."""
        library = kernel.library()
        if library is None or len(fields) > _MOST_KEY_FIELDS:
            return None
        return cls(library, fields, tombstones_only=tombstones_only)

    def read(self, values: pa.Array, keys: pa.Array) -> Taken:
        """Read the records of a batch."""
        is_null = _to_numpy(pc.is_null(values))
        kinds = np.where(is_null, DELETE, UPSERT).astype(np.int8)
        if self._tombstones_only:
            rows = self._deletes(is_null, pa.nulls(len(values), pa.binary()), keys)
            rows = pc.if_else(pa.array(is_null), rows, values)
            return Taken(rows, kinds, is_null & _to_numpy(pc.is_null(rows)))
        found, _ = self._envelope.read(values)
        is_wrapped = _is_there(found[_PAYLOAD]) & ~_is_there(found[_OP])
        found = _unwrapped(self._envelope, found, is_wrapped)
        op = found[_OP]
        is_delete = _to_numpy(pc.equal(op, pa.scalar(b'"d"', pa.binary())))
        kinds[is_delete] = DELETE
        deletes = self._deletes(is_delete | is_null, found[_BEFORE], keys)
        rows = pc.if_else(pa.array(is_delete | is_null), deletes, self._upserts(found))
        return Taken(rows, kinds, _to_numpy(pc.is_null(rows)))

    def _upserts(self, found: dict[str, pa.Array]) -> pa.Array:
        """Return the rows of creates, updates and snapshots; null for what is none of these."""
        before, after, op = found[_BEFORE], found[_AFTER], found[_OP]
        is_row = _to_numpy(pc.is_in(op, value_set=_ROW_OPS)) & _is_object(after)
        is_row &= ~_to_numpy(pc.match_substring(after, UNAVAILABLE))
        is_checked = is_row & _to_numpy(pc.equal(op, pa.scalar(b'"u"', pa.binary())))
        is_checked &= _is_object(before)
        if is_checked.any():
            is_row[np.flatnonzero(is_checked)[self._has_other_key(before, after, is_checked)]] = (
                False
            )
        return pc.if_else(pa.array(is_row), after, _NOTHING)

    def _has_other_key(self, before: pa.Array, after: pa.Array, which: Mask) -> Mask:
        """Tell for the rows of ``which`` if the key before may be another than that after."""
        mask = pa.array(which)
        old, old_states = self._row.read(before.filter(mask))
        new, new_states = self._row.read(after.filter(mask))
        differs: Mask = (old_states != LINE) | (new_states != LINE)
        for name in self._fields:
            was = _without_nulls(old[name])
            same = _to_numpy(pc.equal(was, new[name]))
            differs |= _to_numpy(pc.is_valid(was)) & ~same
        return differs

    def _deletes(self, which: Mask, before: pa.Array, keys: pa.Array) -> pa.Array:
        """Return the keys of the deleted rows ``which`` as JSON objects; null where they are in
        neither the row nor the record's key.
        """
        if not which.any():
            return pa.nulls(len(before), pa.binary())
        mask = pa.array(which)
        known, states = self._row.read(before.filter(mask))
        of_records = self._key_fields(keys.filter(mask))
        is_odd = (states != LINE) & _is_object(before.filter(mask))
        parts: list[Any] = []
        for number, name in enumerate(self._fields):
            value = pc.coalesce(_without_nulls(known[name]), _without_nulls(of_records[name]))
            start = ("," if number else "{") + json.dumps(name, ensure_ascii=False) + ":"
            parts += [pa.scalar(start.encode(), pa.binary()), value]
        parts.append(pa.scalar(b"}", pa.binary()))
        made = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        made = pc.if_else(pa.array(is_odd), _NOTHING, made)
        places = np.full(len(which), -1, np.int64)
        places[which] = np.arange(len(made))
        return made.take(pa.array(places, mask=~which))

    def _key_fields(self, keys: pa.Array) -> dict[str, pa.Array]:
        """Return the fields of records' keys (`debezium.key_payload`)."""
        found, _ = self._key.read(keys)
        schema, payload = found[_SCHEMA], found[_PAYLOAD]
        has_schema = _is_object(schema) | _to_numpy(pc.equal(schema, _NULL))
        is_wrapped = _is_object(payload) | (_is_there(payload) & has_schema)
        for name in set(self._fields) - set(WRAPPER):
            is_wrapped &= ~_is_there(found[name])
        return _unwrapped(self._key, found, is_wrapped)


def _unwrapped(
    reader: FieldReader, found: dict[str, pa.Array], is_wrapped: Mask
) -> dict[str, pa.Array]:
    """Return the fields of objects, and of those in the wrapper of Kafka Connect."""
    if not is_wrapped.any():
        return found
    mask = pa.array(is_wrapped)
    inner, _ = reader.read(pc.if_else(mask, found[_PAYLOAD], _NOTHING))
    return {name: pc.if_else(mask, inner[name], each) for name, each in found.items()}


def _without_nulls(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, _NULL), _NOTHING, texts)


def _is_there(texts: pa.Array) -> Mask:
    return _to_numpy(pc.is_valid(texts))


def _is_object(texts: pa.Array) -> Mask:
    return _to_numpy(pc.equal(pc.binary_slice(texts, 0, 1), pa.scalar(b"{", pa.binary())))


def _to_numpy(mask: pa.Array) -> Mask:
    """Return a mask; false where it is null."""
    found: Mask = mask.fill_null(False).to_numpy(zero_copy_only=False)
    return found
