"""A table of a load as a DataFrame, whatever its kind; no further jars are needed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.spark.lakehouse.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, table: Table) -> DataFrame:
    """Return the rows of the files that the table names now.

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
    """Return a path that Spark does not take for a pattern.

    Its option ``__globPaths__`` will not do: with it files whose paths look like one come twice.
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
