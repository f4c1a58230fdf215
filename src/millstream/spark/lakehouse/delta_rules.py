"""What a Delta table asks of those who write to it, and loads do not keep.

A load commits files that its tasks have written, so nobody compares rows with the table's rules:
`deltalake` does so only for rows that go through it. A table with such rules is refused.
Source: the Delta protocol, "Writer Requirements".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.formats.raw import RAW_COLUMNS
from millstream.spark.lakehouse.table import Layout, offset_column_of

_CONSTRAINT: Final = "delta.constraints."
_MAPPING: Final = "delta.columnMapping.mode"
_INVARIANT: Final = "delta.invariants"
_GENERATED: Final = "delta.generationExpression"
_UNSUPPORTED: Final = "Unsupported table features"

_PLACE: Final = ("topic", "partition", "offset")
_TIMESTAMP_TYPE: Final = "timestampType"


def check_rules(name: object, table: DeltaTable) -> None:
    """Raise ConfigError for a table whose rules a load would break, or whose files have other
    names of columns.
    """
    configuration = table.metadata().configuration
    mapping = configuration.get(_MAPPING, "none")
    if mapping != "none":
        raise ConfigError(
            f"{name} has column mapping ({_MAPPING} = {mapping}): its files name columns "
            "otherwise, and readers would find none of what a load writes"
        )
    rules = [
        f"{key.removeprefix(_CONSTRAINT)} ({text})"
        for key, text in configuration.items()
        if key.startswith(_CONSTRAINT)
    ]
    fields: list[Mapping[str, Any]] = json.loads(table.schema().to_json())["fields"]
    rules += [
        f"{each['name']} ({each['metadata'][kind]})"
        for each in fields
        for kind in (_INVARIANT, _GENERATED)
        if kind in (each.get("metadata") or {})
    ]
    if rules:
        raise ConfigError(
            f"{name} has constraints or generated columns, which a load does not keep: "
            f"{', '.join(sorted(rules))}. Drop them (ALTER TABLE … DROP CONSTRAINT …), or load "
            "into another table"
        )


def check_nulls(name: object, table: DeltaTable, layout: Layout) -> None:
    """Raise ConfigError for columns that are NOT NULL, but for those that a load always fills: a
    record may lack any other value.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    known = {*_never_null_of(layout.schema), *layout.filled}
    found = [path for path in _never_null(fields) if path not in known]
    if found:
        raise ConfigError(
            f"{name}: {', '.join(found)} is NOT NULL, and a record may have no value there (ALTER "
            "TABLE … ALTER COLUMN … DROP NOT NULL lets rows be without one)"
        )


def _never_null_of(schema: pa.Schema) -> list[str]:
    """Return the columns of a record's place. A decoded table may have a column ``topic`` of the
    values besides, which a record may lack.
    """
    prefix = offset_column_of(schema).removesuffix("offset")
    place = [f"{prefix}{name}" for name in _PLACE]
    is_raw = all(each in list(schema) for each in RAW_COLUMNS)
    return [*place, _TIMESTAMP_TYPE] if is_raw else place


def _never_null(fields: Collection[Mapping[str, Any]], within: str = "") -> Iterator[str]:
    for each in fields:
        path = f"{within}{each['name']}"
        if not each.get("nullable", True):
            yield path
        yield from _never_null_in(each["type"], path)


def _never_null_in(kind: Any, path: str) -> Iterator[str]:
    """Yield what cannot be null inside of a type."""
    if isinstance(kind, str):
        return
    if kind["type"] == "struct":
        yield from _never_null(kind["fields"], f"{path}.")
        return
    item, flag = {
        "array": ("elementType", "containsNull"),
        "map": ("valueType", "valueContainsNull"),
    }[kind["type"]]
    if not kind.get(flag, True):
        yield f"{path}[]"
    yield from _never_null_in(kind[item], f"{path}[]")


def check_features(name: object, error: Exception) -> None:
    """Raise ConfigError if a commit has failed for what the table's protocol asks of writers."""
    if _UNSUPPORTED in str(error):
        raise ConfigError(f"{name}: deltalake does not write such a table: {error}") from None
