"""How the columns of a table may change: new ones at the end, wider types; matched by name. Pure.

Widening loses nothing: ``int32`` → ``int64`` → ``double`` (whole numbers up to 2^53), ``float`` →
``double``, ``date32`` → ``timestamp``. Text holds anything, but a column becomes text only while a
schema is inferred: later a number that turns out to be text is a bad row.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from millstream.model.errors import ConfigError

_RANKS: Final = {
    pa.int8(): 1,
    pa.int16(): 2,
    pa.int32(): 3,
    pa.int64(): 4,
    pa.float32(): 5,
    pa.float64(): 6,
}


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds the values of both; None when only text would."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if one in _RANKS and other in _RANKS:
        low, high = sorted((one, other), key=_RANKS.__getitem__)
        if pa.types.is_floating(high) and low in (pa.int32(), pa.int64()):
            return pa.float64()
        return high
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(list(merge(pa.schema(list(one)), pa.schema(list(other)))))
    if pa.types.is_list(one) and pa.types.is_list(other):
        inner = wider(one.value_type, other.value_type)
        return None if inner is None else pa.list_(inner)
    times = {pa.types.is_date(one), pa.types.is_date(other)}
    if times == {True, False} and (pa.types.is_timestamp(one) or pa.types.is_timestamp(other)):
        return one if pa.types.is_timestamp(one) else other
    return None


def merge(known: pa.Schema, seen: pa.Schema, *, to_text: bool = False) -> pa.Schema:
    """Return ``known`` with the columns of ``seen`` that it lacks, and types that hold both.

    A column whose types only text would hold stays as it is known, or becomes text (``to_text``).
    """
    fields = list(known)
    for field in seen:
        index = known.get_field_index(field.name)
        if index < 0:
            fields.append(field.with_nullable(True))
        else:
            kind = wider(fields[index].type, field.type)
            if kind is None and to_text:
                kind = pa.string()
            if kind is not None:
                fields[index] = fields[index].with_type(kind)
    return pa.schema(fields)


def changed_columns(known: pa.Schema, wanted: pa.Schema) -> tuple[list[pa.Field], list[pa.Field]]:
    """Return the columns of ``wanted`` that ``known`` lacks, and those whose type is another."""
    added = [field for field in wanted if known.get_field_index(field.name) < 0]
    widened = [
        field
        for field in wanted
        if known.get_field_index(field.name) >= 0 and known.field(field.name).type != field.type
    ]
    return added, widened


def check_same_columns(table: str, found: pa.Schema, wanted: pa.Schema) -> None:
    """Raise ConfigError unless a table that is there has the columns that a load writes.

    Columns that only the table has are left null.
    """
    added, different = changed_columns(found, wanted)
    if added or different:
        texts = [f"no column {field.name}" for field in added]
        texts += [
            f"{field.name} as {found.field(field.name).type}, not {field.type}"
            for field in different
        ]
        raise ConfigError(f"{table} is there with other columns: it has {', '.join(texts)}")
