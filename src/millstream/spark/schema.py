"""The columns of a read: those of the stock connector, in its order, with its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

HEADERS: Final = "headers"

COLUMN_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
"""Spark's type of each column. ``timestampType`` is 0 for create time and 1 for log append time;
``headers`` is null for a record that has none."""

COLUMNS: Final = tuple(name for name in COLUMN_TYPES if name != HEADERS)
"""What a read has unless ``includeHeaders`` adds the headers or ``columns`` chooses."""


def ddl(columns: Sequence[str]) -> str:
    """Return the schema of these columns as Spark reads it, ``key binary, value binary, …``."""
    return ", ".join(f"{name} {COLUMN_TYPES[name]}" for name in columns)
