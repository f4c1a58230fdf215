"""A table of a load as a DataFrame, for every kind of table; no further jars are needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.spark.lakehouse.compaction import without_rows
from millstream.spark.lakehouse.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, table: Table) -> DataFrame:
    """Return the rows of the files that the table references now.

    Spark reads the Parquet files themselves, so Delta and Iceberg need no connector. Columns that
    were added later are null in older files.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema(), prefer_timestamp_ntz=True)
    deleted = table.deleted_rows()
    files = table.files()
    paths = [(table.data_directory / path).uri() for path in files if path not in deleted]
    reader = spark.read.schema(schema).option("basePath", table.data_directory.uri())
    rows = reader.parquet(*map(_escaped, paths)) if paths else spark.createDataFrame([], schema)
    for path in files:
        if path in deleted:
            kept = _kept_rows(table, path, deleted[path])
            rows = rows.unionByName(spark.createDataFrame(kept, schema))
    return rows


def _kept_rows(table: Table, path: str, deleted: Sequence[int]) -> pa.Table:
    """Return the rows of a file of which other programs have deleted some, read on the driver."""
    found = without_rows(pq.ParquetFile((table.data_directory / path).open_input()).read(), deleted)
    in_path = dict(part.split("=", 1) for part in path.split("/")[:-1] if "=" in part)
    columns = [
        found[field.name].cast(field.type)
        if field.name in found.column_names
        else pa.array([in_path.get(field.name)] * found.num_rows, pa.string()).cast(field.type)
        if field.name in in_path
        else pa.nulls(found.num_rows, field.type)
        for field in table.schema()
    ]
    return pa.Table.from_arrays(columns, schema=table.schema())


def _escaped(path: str) -> str:
    """Return a path escaped so that Spark does not treat it as a glob pattern.

    Its option ``__globPaths__`` does not help: with it files whose paths look like a pattern are
    read twice.
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
