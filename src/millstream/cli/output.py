"""How commands print: a table for a person, tab-separated lines for a pipe, JSON for a script."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Cell: TypeAlias = str | int | float | bool | list[int] | None
Row: TypeAlias = Mapping[str, Cell]


def print_json(value: object) -> None:
    """Print one JSON document; names and texts keep their characters."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(rows: Sequence[Row], columns: Mapping[str, str], *, title: str = "") -> None:
    """Print rows under headings; ``columns`` maps a row's key to its heading.

    On a terminal this is a table with an optional title; into a pipe go tab-separated lines
    without headings, so that ``cut``, ``awk`` and ``xargs`` work on them.
    """
    if sys.stdout.isatty():
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


def human_bytes(size: float) -> str:
    """Return a size as people write it: ``512 B``, ``2.4 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def human_duration(seconds: float) -> str:
    """Return a duration as people write it: ``0.8 s``, ``3 m 20 s``, ``2 h 5 m``, ``4 d 1 h``."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds else "0 s"
    units = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))
    remaining = int(seconds)
    parts: list[str] = []
    for length, unit in units:
        count, remaining = divmod(remaining, length)
        if count or parts:
            parts.append(f"{count} {unit}")
    return " ".join(part for part in parts[:2] if not part.startswith("0 "))


def print_line(value: object) -> None:
    """Print one JSON document on one line."""
    print(json.dumps(value, ensure_ascii=False))


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 segment``, ``3 segments``, ``2 entries``,
    ``1,000 rows``.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"
