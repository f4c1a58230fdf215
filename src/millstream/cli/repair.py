"""`millstream repair`: what a crash may leave of a table is put right."""

from __future__ import annotations

from millstream.cli.output import counted, print_done, print_note
from millstream.cli.table_arguments import StorageOptions, TableArgument, existing_table


def repair(table: TableArgument, storage_option: StorageOptions = None) -> None:
    """Remove duplicate references to data files from a table and its dead letters, and commit dead
    letters that a crashed load left behind. No row is written.
    """
    from millstream.spark.lakehouse.dead_letter_commits import settle_all
    from millstream.spark.lakehouse.table import dead_letters_of, open_table

    found = existing_table(table, storage_option)
    settled = settle_all(found.name)
    dead_letters = open_table(dead_letters_of(found.name))
    mended = found.remove_duplicates()
    mended += dead_letters.remove_duplicates() if dead_letters.exists() else []
    if settled:
        told = f"{counted(settled, 'dead letter')} committed that a load had left"
        print_done(told, "dead letters", settled)
    for path in mended:
        print_done(f"{path}: one reference left", "file", path)
    if not mended and not settled:
        print_note(f"{table}: every file is referenced once")
