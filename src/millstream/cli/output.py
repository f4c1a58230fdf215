"""How commands print: a table for a person, tab-separated lines for a pipe, JSON for a script."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from millstream.config.quantities import counted, human_bytes, human_duration

__all__ = [
    "Cell",
    "Row",
    "counted",
    "human_bytes",
    "human_duration",
    "is_for_a_person",
    "print_cells",
    "print_done",
    "print_json",
    "print_line",
    "print_note",
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
        print_cells([row[key] for key in columns])


def print_done(told: str, *cells: Cell) -> None:
    """Print what was done: a sentence on a terminal, into a pipe a row of these cells."""
    if is_for_a_person():
        print(told)
    else:
        print_cells(cells)


def print_note(text: str) -> None:
    """Print a sentence beside rows: on standard error where they go into a pipe, which gets
    nothing but rows.
    """
    print(text, file=sys.stdout if is_for_a_person() else sys.stderr)


def print_cells(cells: Sequence[Cell]) -> None:
    """Print a row for a pipe; tabs and ends of lines in a cell are printed as in \\t."""
    print("\t".join(_BREAKS.sub(_escaped, _text(cell)) for cell in cells))


_BREAKS: Final = re.compile(r"[\t\r\n]")


def _escaped(found: re.Match[str]) -> str:
    return {"\t": "\\t", "\r": "\\r", "\n": "\\n"}[found[0]]


_FOLDED: Final = 12
"""Cells are folded to so many characters at least."""
_BETWEEN: Final = 3
"""Blanks between two columns; the table has as many in front and behind, less one."""


def _print_table(rows: Sequence[Row], columns: Mapping[str, str], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    room = console.width - _BETWEEN * len(columns) + 1
    texts = {key: [_text(row[key]) for row in rows] for key in columns}
    widths = _widths([(heading, texts[key]) for key, heading in columns.items()], room)
    for (key, heading), width in zip(columns.items(), widths, strict=True):
        numeric = all(isinstance(row[key], int | float | None) for row in rows)
        justify: Literal["right", "left"] = "right" if numeric else "left"
        table.add_column(heading, justify=justify, overflow="fold", width=width)
    for index in range(len(rows)):
        table.add_row(*(texts[key][index] for key in columns))
    console.width += max(sum(widths) - room, 0)
    console.print(table)


def _widths(columns: Sequence[tuple[str, Sequence[str]]], room: int) -> list[int]:
    """Return the width of each column, given its heading and cells: as wide as they are where there
    is room, or folded. Where there is no room for what can still be read the sum is larger, and the
    terminal breaks the lines of the table.
    """
    from rich.cells import cell_len

    cells = [max(map(cell_len, texts), default=0) for _, texts in columns]
    natural = [max(cell_len(name), width) for (name, _), width in zip(columns, cells, strict=True)]
    found = [
        max(1, min(_FOLDED, width), *map(cell_len, name.split()))
        for (name, _), width in zip(columns, cells, strict=True)
    ]
    spare = max(room - sum(found), 0)
    for index in sorted(range(len(found)), key=lambda each: natural[each] - found[each]):
        given = min(natural[index] - found[index], spare)
        found[index] += max(given, 0)
        spare -= max(given, 0)
    return found


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
