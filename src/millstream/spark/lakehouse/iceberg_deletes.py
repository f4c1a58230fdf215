"""Rows that other programs have deleted from files of an Iceberg table, by their positions."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_all_delete_files as read_deletes
from pyiceberg.table import FileScanTask

from millstream.spark.locations.named import plain_uri


def deletes_of(task: FileScanTask) -> frozenset[str]:
    """Return the delete files of a data file."""
    return frozenset(each.file_path for each in task.delete_files)


def deleted_rows(io: FileIO, tasks: Sequence[FileScanTask]) -> dict[str, Sequence[int]]:
    """Return the positions of the deleted rows of each file that has any, by its plain URI."""
    found: dict[str, Sequence[int]] = {}
    for task in tasks:
        if not task.delete_files:
            continue
        own = plain_uri(task.file.file_path)
        positions: set[int] = set()
        for uri, arrays in read_deletes(io, [task]).items():
            if plain_uri(uri) == own:
                positions.update(row for array in arrays for row in array.to_pylist())
        if positions:
            found[own] = sorted(positions)
    return found
