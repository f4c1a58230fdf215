"""A batch's rows through a user's query (transform): DataFrame in, DataFrame out, then files.

The query gets the source's columns for exactly the batch's offsets. Its rows are written by the
same file writer and committed with the same ledger as in other loads, so they are exactly once as
well. The query has to return the columns ``topic``, ``partition`` and ``offset`` (or with ``_`` in
front), which the audit needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.file_writer import FileRules, FileWriter
from millstream.spark.lakehouse.formats.format import METADATA_COLUMNS
from millstream.spark.lakehouse.landing import Landed
from millstream.spark.offsets import format_partition_numbers
from millstream.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BOUNDS: Final = frozenset(
    name.lower()
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
    )
)
"""Options of what to read, which the batch replaces."""


class Transform:
    """One query over one source."""

    def __init__(
        self,
        spark: SparkSession,
        source: Mapping[str, str],
        query: Callable[[DataFrame], DataFrame],
        *,
        parallelism: int,
    ) -> None:
        self._spark = spark
        self._options = {name: text for name, text in source.items() if name.lower() not in _BOUNDS}
        self._query = query
        self._parallelism = parallelism

    def schema(self, ranges: Sequence[OffsetRange]) -> pa.Schema:
        """Return the columns of the query's result; ConfigError if it drops the offsets."""
        from pyspark.sql.pandas.types import to_arrow_schema

        from millstream.spark.lakehouse.widening import one_of_each_name, plain

        schema = plain(to_arrow_schema(self._rows(ranges).schema, timezone="UTC"))
        if len(one_of_each_name(schema)) < len(schema):
            raise ConfigError(f"the query gives a column twice: {', '.join(schema.names)}")
        for names in (METADATA_COLUMNS.values(), METADATA_COLUMNS):
            if {*list(names)[:3]} <= set(schema.names):
                return schema
        raise ConfigError(
            "the query has to keep the columns topic, partition and offset (or _topic, _partition "
            f"and _offset), by which the audit knows each row; it gives {', '.join(schema.names)}"
        )

    def land(self, ranges: Sequence[OffsetRange], files: FileRules, schema: pa.Schema) -> Landed:
        """Run the query over the offsets of a batch and write its rows."""

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            writer = FileWriter(files, schema, 0 if context is None else context.partitionId())
            for batch in batches:
                columns = [batch.column(each.name).cast(each.type) for each in schema]
                writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
            landed = Landed(writer.finish())
            yield pa.RecordBatch.from_pydict({"landed": [landed.to_json()]})

        rows = self._rows(ranges).mapInArrow(write, "landed string").collect()
        parts = [Landed.from_json(row.landed) for row in rows]
        return Landed([file for part in parts for file in part.files])

    def _rows(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        assigned: dict[str, list[int]] = {}
        for each in ranges:
            topic_partition = each.topic_partition
            assigned.setdefault(topic_partition.topic, []).append(topic_partition.partition)
        options: dict[str, Any] = {
            **self._options,
            "assign": json.dumps(assigned),
            "startingOffsets": format_partition_numbers(
                {each.topic_partition: each.start for each in ranges}
            ),
            "endingOffsets": format_partition_numbers(
                {each.topic_partition: each.end for each in ranges}
            ),
            "minPartitions": str(self._parallelism),
        }
        return self._query(self._spark.read.format("millstream").options(**options).load())
