"""How the columns of a table may change: new ones at the end, wider types; matched by name. Pure.

Widening loses nothing: ``int32`` → ``int64`` → ``double`` (whole numbers up to 2^53), ``float`` →
``double``, ``date32`` → ``timestamp``. A text column could hold anything, but one text among
numbers is treated as a bad row and does not turn a column of numbers into text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
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


_PLAIN: Final = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}


def plain(schema: pa.Schema) -> pa.Schema:
    """Return the schema that files are written with: without large types, views, metadata and the
    names that libraries give to the items of lists.
    """
    return pa.schema([pa.field(each.name, plain_type(each.type)) for each in schema])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return one type in its plain form."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    return _PLAIN.get(kind, kind)


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


def agree(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the columns of many schemas, each with its most frequent type, made wider for those
    others that it can be made wider for.
    """
    kinds: dict[str, Counter[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            kinds.setdefault(field.name, Counter())[field.type] += 1
    fields = []
    for name, counts in kinds.items():
        (chosen, _), *others = counts.most_common()
        for other, _ in others:
            chosen = wider(chosen, other) or chosen
        fields.append(pa.field(name, chosen))
    return pa.schema(fields)


def merge(known: pa.Schema, seen: pa.Schema) -> pa.Schema:
    """Return ``known`` with the columns of ``seen`` that it lacks, and types that hold both.

    A column whose types only text could represent keeps its known type.
    """
    fields = list(known)
    for field in seen:
        index = known.get_field_index(field.name)
        if index < 0:
            fields.append(field.with_nullable(True))
        else:
            kind = wider(fields[index].type, field.type)
            if kind is not None:
                fields[index] = fields[index].with_type(kind)
    return pa.schema(fields)


def one_of_each_name(schema: pa.Schema) -> pa.Schema:
    """Return a schema without the columns whose names differ from an earlier one's in case alone.

    Spark and Delta do not tell such columns apart.
    """
    first: dict[str, pa.Field] = {}
    for field in schema:
        first.setdefault(field.name.casefold(), field)
    return pa.schema(list(first.values()))


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
    """Raise ConfigError unless an existing table has the columns that a load writes.

    Columns that only the table has are left null.
    """
    added, different = changed_columns(found, wanted)
    if added or different:
        texts = [f"no column {field.name}" for field in added]
        texts += [
            f"{field.name} as {found.field(field.name).type}, not {field.type}"
            for field in different
        ]
        raise ConfigError(f"{table} already exists with other columns: it has {', '.join(texts)}")
