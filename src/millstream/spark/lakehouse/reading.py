"""A table of a load as a DataFrame, for every kind of table; no further jars are needed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.spark.lakehouse.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, table: Table) -> DataFrame:
    """Return the rows of the files that the table references now.

    Spark reads the Parquet files themselves, so Delta and Iceberg need no connector. Columns that
    were added later are null in older files.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema(), prefer_timestamp_ntz=False)
    paths = [str(table.data_directory / path) for path in table.files()]
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", str(table.data_directory))
    return reader.parquet(*map(_escaped, paths))


def _escaped(path: str) -> str:
    """Return a path escaped so that Spark does not treat it as a glob pattern.

    Its option ``__globPaths__`` does not help: with it files whose paths look like a pattern are
    read twice.
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
