"""`millstream repair`: one reference for each data file of a table."""

from __future__ import annotations

from millstream.cli.table_arguments import TableArgument, existing_table


def repair(table: TableArgument) -> None:
    """Where a table names a data file more than once, leave one reference. No row is written."""
    mended = existing_table(table).remove_duplicates()
    for path in mended:
        print(f"{path}: one reference left")
    if not mended:
        print(f"{table}: every file is referenced once")
