"""`millstream repair`: what a crash may leave of a table is put right."""

from __future__ import annotations

from millstream.cli.output import counted
from millstream.cli.table_arguments import StorageOptions, TableArgument, existing_table


def repair(table: TableArgument, storage_option: StorageOptions = None) -> None:
    """Leave one reference where a table, or that of its dead letters, names a data file more than
    once, and commit dead letters that a load which died has left. No row is written.
    """
    from millstream.spark.lakehouse.dead_letter_commits import settle_all
    from millstream.spark.lakehouse.table import dead_letters_of, open_table

    found = existing_table(table, storage_option)
    settled = settle_all(found.name)
    dead_letters = open_table(dead_letters_of(found.name))
    mended = found.remove_duplicates()
    mended += dead_letters.remove_duplicates() if dead_letters.exists() else []
    if settled:
        print(f"{counted(settled, 'dead letter')} committed that a load had left")
    for path in mended:
        print(f"{path}: one reference left")
    if not mended and not settled:
        print(f"{table}: every file is referenced once")
