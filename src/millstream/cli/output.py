"""How commands print: a table for a person, tab-separated lines for a pipe, JSON for a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from millstream.config.quantities import counted, human_bytes, human_duration

__all__ = [
    "Cell",
    "Row",
    "counted",
    "human_bytes",
    "human_duration",
    "print_json",
    "print_line",
    "print_rows",
]

Cell: TypeAlias = str | int | float | bool | list[int] | None
Row: TypeAlias = Mapping[str, Cell]


def print_json(value: object) -> None:
    """Print one JSON document; names and texts keep their characters."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def is_for_a_person() -> bool:
    """Tell whether what is printed goes to a terminal: then tables and sentences, else rows."""
    return sys.stdout.isatty()


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], *, title: str = "") -> None:
    """Print rows under headings; ``columns`` maps a row's key to its heading.

    On a terminal this is a table with an optional title; into a pipe go tab-separated lines
    without headings, so that ``cut``, ``awk`` and ``xargs`` work on them.
    """
    if is_for_a_person():
        _print_table(rows, columns, title)
        return
    for row in rows:
        print("\t".join(_text(row[key]) for key in columns))


def _print_table(rows: Sequence[Row], columns: Mapping[str, str], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for key, heading in columns.items():
        numeric = all(isinstance(row[key], int | float | None) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(row[key]) for key in columns))
    Console(markup=False, highlight=False).print(table)


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, list):
        return ",".join(map(str, cell))
    if isinstance(cell, float):
        return f"{cell:.3f}".rstrip("0").rstrip(".")
    return str(cell)


def print_line(value: object) -> None:
    """Print one JSON document on one line."""
    print(json.dumps(value, ensure_ascii=False))
