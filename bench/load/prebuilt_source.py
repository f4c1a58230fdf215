"""A data source that yields batches it made beforehand: how fast Spark takes rows from Python.

Its columns are those of Spark's Kafka source, its values lines of the access log. Whatever reads
records in a Python data source is slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

ROWS = 4_400
"""About a megabyte of values."""


class PrebuiltDataSource(DataSource):
    """Options: ``rows`` in all, ``tasks``, and ``lines``, a file of values."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset bigint, "
            "timestamp timestamp, timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return PrebuiltReader(schema, dict(self.options))


class PrebuiltReader(DataSourceReader):
    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> list[InputPartition]:
        tasks = int(self._options["tasks"])
        rows = int(self._options["rows"])
        return [
            InputPartition(rows * (task + 1) // tasks - rows * task // tasks)
            for task in range(tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        left = int(partition.value)
        lines = Path(self._options["lines"]).read_bytes().splitlines()
        values = (lines * (ROWS // len(lines) + 1))[:ROWS]
        schema = to_arrow_schema(self._schema, timezone="UTC")
        numbers = pa.array(range(ROWS), pa.int64())
        columns = {
            "key": pa.nulls(ROWS, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.repeat("bench-access-log", ROWS),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), ROWS),
            "offset": numbers,
            "timestamp": numbers.cast(schema.field("timestamp").type),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), ROWS),
        }
        batch = pa.RecordBatch.from_arrays([columns[each.name] for each in schema], schema=schema)
        while left > 0:
            yield batch.slice(0, min(left, ROWS))
            left -= ROWS
