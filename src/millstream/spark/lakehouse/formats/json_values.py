"""One JSON object: its fields as Python reads them, as columns take them, and the types that they
need.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.json as pj

from millstream.spark.lakehouse.formats.decimals import WrittenFloat, to_decimal
from millstream.spark.lakehouse.formats.format import MOST_EXACT, TIMESTAMP, Fields
from millstream.spark.lakehouse.formats.times import to_microseconds

DEEPEST: Final = 50
"""Levels of lists and objects; beyond, no reader of the table would follow."""


def read_object(value: bytes, *, exact: bool = False) -> Fields:
    """Return the fields of an object; ValueError for anything else.

    With ``exact`` numbers that are not whole keep how they were written.
    """
    found: Any = json.loads(value, parse_float=WrittenFloat if exact else None)
    if not isinstance(found, dict):
        raise ValueError(f"a JSON {type(found).__name__}, not an object")
    return found


def has_kind(value: Any) -> bool:
    """Tell whether a field of this value gets a column; see ``plain``."""
    if isinstance(value, dict | list):
        return any(map(has_kind, value.values() if isinstance(value, dict) else value))
    return value is not None


def check_depth(value: Any, left: int = DEEPEST) -> None:
    """Raise ValueError for lists and objects that are nested deeper than ``left``."""
    if left < 0:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            check_depth(each, left - 1)


def contains(kind: pa.DataType, wanted: Callable[[pa.DataType], bool]) -> bool:
    """Tell whether a type is a wanted one, or has one inside."""
    if wanted(kind):
        return True
    return any(contains(kind.field(index).type, wanted) for index in range(kind.num_fields))


def converted(fields: Fields, column: pa.Field) -> Any:
    """Return the field of a column as Arrow takes it; ValueError names the column."""
    try:
        return _as_type(fields.get(column.name), column.type)
    except ValueError as error:
        raise ValueError(f"column {column.name}: {error}") from None


def _as_type(value: Any, kind: pa.DataType) -> Any:
    """Return a value with times as microseconds since 1970, decimals as such, and maps as pairs, at
    any depth.

    ValueError for a number in the place of a time: it does not say what it counts.
    """
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        if not isinstance(value, str):
            raise ValueError(f"{json.dumps(value)} is not a time, which is a text")
        return to_microseconds(value, kind)
    if pa.types.is_decimal(kind):
        return to_decimal(value, kind)
    if pa.types.is_map(kind) and isinstance(value, dict):
        return [(key, _as_type(each, kind.item_type)) for key, each in value.items()]
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_as_type(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        known = {each.name: each.type for each in kind}
        return {n: _as_type(v, known[n]) if n in known else v for n, v in value.items()}
    return value


def infer(values: list[bytes | None]) -> pa.Schema:
    """Return the columns for these objects; ValueError if one of them is not an object."""
    objects = [value for value in values if value is not None]
    for value in objects:
        read_object(value)
    lines = b"\n".join(value.replace(b"\n", b" ") for value in objects)
    if not lines:
        return pa.schema([])
    table = pj.read_json(
        pa.py_buffer(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines), 1)),
    )
    return plain(table.schema)


def large_numbers(value: bytes) -> set[str]:
    """Return the fields of an object that are 64-bit integers which may not be exact as doubles."""
    return {
        name
        for name, each in read_object(value).items()
        if type(each) is int and MOST_EXACT < abs(each) < 2**63
    }


def plain(schema: pa.Schema, left: int = DEEPEST) -> pa.Schema:
    """Return inferred types as tables keep them: times in UTC; fields without a type yet are left
    out.

    ValueError if nested too deep.
    """
    kinds = [(field, _plain_type(field.type, left)) for field in schema]
    return pa.schema([field.with_type(kind) for field, kind in kinds if kind is not None])


def _plain_type(kind: pa.DataType, left: int) -> pa.DataType | None:
    if left < 0:
        raise ValueError(f"nested more than {DEEPEST} deep")
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_null(kind):
        return None
    if pa.types.is_struct(kind):
        known = plain(pa.schema(list(kind)), left - 1)
        return pa.struct(list(known)) if len(known) else None
    if pa.types.is_list(kind):
        item = _plain_type(kind.value_type, left - 1)
        return None if item is None else pa.list_(item)
    return kind
