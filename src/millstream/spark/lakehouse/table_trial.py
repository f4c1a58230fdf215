"""Whether a load writes a table with the properties that it is given.

A library may make a table that it does not write to, and a load refuses tables whose rules it does
not keep (``delta_rules``). So a table with the properties is made in a directory of its own first,
and written to as the load does.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.data_files import DataFile, file_name
from millstream.spark.lakehouse.table import (
    Layout,
    Replacement,
    Table,
    TableName,
    open_merge_table,
    open_table,
)
from millstream.spark.locations.location import as_location

_APP_ID: Final = "trial"


def check_properties(name: TableName, layout: Layout, *, is_upsert: bool) -> None:
    """Raise ConfigError for properties with which a load does not write a table, before there is
    one. The text names the property.
    """
    if not layout.properties or name.kind == "parquet":
        return
    with tempfile.TemporaryDirectory(prefix="millstream-trial-") as directory:
        trial = _Trial(name, layout, Path(directory), is_upsert=is_upsert)
        reason = trial.refusal(layout.properties)
        if reason is None:
            return
        for key, value in layout.properties.items():
            why = trial.refusal({key: value})
            if why is not None:
                raise ConfigError(f"{name}: no load writes a table with {key} = {value}: {why}")
    together = ", ".join(f"{key} = {value}" for key, value in layout.properties.items())
    raise ConfigError(f"{name}: no load writes a table with {together}: {reason}")


class _Trial:
    """Makes tables of a kind in a directory."""

    def __init__(
        self, name: TableName, layout: Layout, directory: Path, *, is_upsert: bool
    ) -> None:
        self._name = name
        # How a table is split says nothing about its properties, and a row of nulls is in no part.
        self._layout = Layout(schema=layout.schema)
        self._directory = directory
        self._is_upsert = is_upsert
        self._count = 0

    def refusal(self, properties: Mapping[str, str]) -> str | None:
        """Return why a table with these properties is not made or not written; None if it is."""
        self._count += 1
        place = as_location(self._directory / f"table{self._count}")
        name = TableName(self._name.kind, place)
        try:
            self._write(name, replace(self._layout, properties=properties))
        except Exception as error:  # libraries raise various exceptions for values that they refuse
            return (
                str(error).removeprefix(f"{name}: ").replace(str(name.path), str(self._name.path))
            )
        return None

    def _write(self, name: TableName, layout: Layout) -> None:
        table = open_table(name)
        table.create(layout)
        table.commit(_APP_ID, {"batch": 1}, [_file(table, layout.schema, 1)], expected={})
        if not self._is_upsert:
            return
        merged = open_merge_table(name)
        change = Replacement(
            base=merged.state(), removed=merged.files(), added=[_file(table, layout.schema, 2)]
        )
        merged.replace(_APP_ID, {"batch": 2}, change, expected={"batch": 1})


def _file(table: Table, schema: pa.Schema, batch: int) -> DataFile:
    path = file_name(_APP_ID, batch=batch, task=0, attempt="0" * 8)
    file = table.staging_directory / path
    rows = pa.Table.from_arrays([pa.nulls(1, each.type) for each in schema], schema=schema)
    with file.open_output() as output:
        pq.write_table(rows, output)
    file.settle()
    return DataFile(path=path, size_bytes=file.size_bytes(), rows=1)
