"""What a Delta table asks of those who write to it, and loads do not keep.

A load commits files that its tasks have written, so nobody compares rows with the table's rules:
`deltalake` does so only for rows that go through it. A table with such rules is refused.
Source: the Delta protocol, "Writer Requirements".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from deltalake import DeltaTable

from millstream.model.errors import ConfigError

_CONSTRAINT: Final = "delta.constraints."
_MAPPING: Final = "delta.columnMapping.mode"
_INVARIANT: Final = "delta.invariants"
_GENERATED: Final = "delta.generationExpression"
_UNSUPPORTED: Final = "Unsupported table features"

NEVER_NULL: Final = frozenset(
    ("topic", "partition", "offset", "_topic", "_partition", "_offset", "timestampType")
)
"""Columns of a record's place, which each row of a load has."""


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


def check_nulls(name: object, table: DeltaTable, filled: Collection[str]) -> None:
    """Raise ConfigError for columns that are NOT NULL, but for those that are always ``filled``: a
    record may lack any other value.
    """
    fields = json.loads(table.schema().to_json())["fields"]
    known = NEVER_NULL | set(filled)
    found = [path for path in _never_null(fields) if path not in known]
    if found:
        raise ConfigError(
            f"{name}: {', '.join(found)} is NOT NULL, and a record may have no value there (ALTER "
            "TABLE … ALTER COLUMN … DROP NOT NULL lets rows be without one)"
        )


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
