"""The actions of a Delta log that add and remove files (Delta protocol: Actions)."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from millstream.spark.lakehouse.data_files import DataFile
from millstream.spark.lakehouse.table import MovedOnError


def add_action(file: DataFile, offset_column: str) -> AddAction | RemoveAction:
    """Return the action that adds a file, with what is known of its offsets."""
    stats: dict[str, Any] = {"numRecords": file.rows}
    if file.max_offset >= file.min_offset:
        stats |= {
            "minValues": {offset_column: file.min_offset},
            "maxValues": {offset_column: file.max_offset},
            "nullCount": {offset_column: 0},
        }
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(stats),
    )


def remove_actions(table: DeltaTable, paths: Collection[str]) -> list[RemoveAction]:
    """Return the actions that remove these files; MovedOnError unless the table has all of them."""
    found = [
        RemoveAction(
            path=path,
            data_change=True,
            deletion_timestamp=int(time.time() * 1000),
            size=each["size_bytes"],
            partition_values={
                name: None if value is None else str(value)
                for name, value in (each.get("partition") or {}).items()
            },
        )
        for each in pa.table(table.get_add_actions()).to_pylist()
        if (path := unquote(each["path"])) in paths
    ]
    if len(found) != len(paths):
        raise MovedOnError(f"{len(paths) - len(found)} files are not in the table any more")
    return found
