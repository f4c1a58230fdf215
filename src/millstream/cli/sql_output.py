"""The rows of a query: a table on a terminal, tab-separated lines in a pipe."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS: Final = 1_000
"""Rows of a table on a terminal."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def print_result(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    """Print rows as they come; a terminal gets the first MOST_ROWS."""
    if sys.stdout.isatty():
        _print_table(schema, batches)
        return
    for batch in batches:
        columns = [_texts(column) for column in batch.columns]
        sys.stdout.writelines("\t".join(row) + "\n" for row in zip(*columns, strict=True))


def _texts(column: pa.Array) -> list[str]:
    return [
        "\\N" if value is None else text_of(value).translate(_ESCAPES)
        for value in column.to_pylist()
    ]


def text_of(value: Any) -> str:
    """Return a value as text: bytes as UTF-8 where they are, times in ISO 8601, nested as JSON."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.decode(errors="backslashreplace")
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, default=text_of)
    return str(value)


def _print_table(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows: list[list[str]] = []
    is_cut = False
    for batch in batches:
        values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        rows += [["" if each is None else text_of(each) for each in row] for row in values]
        if len(rows) > MOST_ROWS:
            is_cut = True
            break
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for field in schema:
        kind = str(field.type)
        is_number = kind.startswith(("int", "uint", "float", "double", "decimal"))
        table.add_column(field.name, justify="right" if is_number else "left", overflow="fold")
    for row in rows[:MOST_ROWS]:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    console.print(table)
    if is_cut:
        console.print(f"the first {MOST_ROWS:,} rows: a pipe, or --output, gets all")
