"""The rows of a query: a table on a terminal, tab-separated lines in a pipe, or a format that was
asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from millstream.cli.arguments import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

MOST_ROWS: Final = 1_000
"""Rows of a table on a terminal."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    ".csv": "csv",
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
"""What the ending of a file says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """In which format rows are written, and where to; ``-`` is standard output."""

    format: str
    path: str


def chosen_output(path: str | None, formats: Mapping[str, bool]) -> Output | None:
    """Return what the options ask for, ``formats`` being those of a format; None if rows are to be
    printed. UsageError if they contradict each other, or leave the format open.
    """
    asked = [name for name, is_asked in formats.items() if is_asked]
    if len(asked) > 1:
        raise UsageError(f"one format at a time, not {' and '.join(f'--{each}' for each in asked)}")
    if path is None and not asked:
        return None
    names = ", ".join(f"--{each}" for each in formats)
    form = asked[0] if asked else _FORMATS.get(PurePath(path or "").suffix.lower())
    if form is None:
        raise UsageError(f"--output {path}: the name does not say in which format; add {names}")
    if form == "parquet" and path in (None, "-") and sys.stdout.isatty():
        raise UsageError("a terminal cannot show Parquet: --output FILE, or a pipe")
    return Output(format=form, path="-" if path is None else path)


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
        console.print(f"the first {MOST_ROWS:,} rows: a pipe, --json, --csv or --output gets all")
