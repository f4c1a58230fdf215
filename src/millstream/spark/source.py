"""`format("millstream")`: a Python data source that yields Arrow alone.

Spark makes the classes here in several places: the driver's JVM asks a Python process for the
schema and for the partitions, once per ``load()``, a streaming query keeps a process that plans its
micro-batches (`stream`), and every task calls ``read`` in a worker. Filters are
not pushed down: in PySpark 4.3 a pushed filter also applies where the same DataFrame is used
without it, and rows go missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from millstream.model.errors import ConfigError
from millstream.spark.options import SourceOptions, check_no_end, parse_options
from millstream.spark.plan import plan_ranges, tasks_of
from millstream.spark.ranges import OffsetRange
from millstream.spark.schema import COLUMN_TYPES, ddl
from millstream.spark.workers import spare_garbage_collection

if TYPE_CHECKING:
    import pyarrow as pa


class MillstreamDataSource(DataSource):
    """Topics of any Kafka-protocol broker, with the options and columns of the stock connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format()``; Spark uses `kafka` for its own connector."""
        return "millstream"

    def schema(self) -> str:
        """Return the columns; ConfigError names an option that is wrong."""
        # Spark does not say here whether the read is a stream, which allows more than a batch.
        columns = parse_options(self.options, streaming=True).columns
        spare_garbage_collection()
        return ddl(columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the columns that ``schema`` names, which are all unless the user
        gave a schema.
        """
        return TopicReader(parse_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        from millstream.spark.stream import TopicStreamReader

        options = parse_options(self.options, streaming=True)
        check_no_end(options)
        return TopicStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch; ConfigError unless the write appends."""
        from millstream.spark.sink import TopicWriter
        from millstream.spark.sink_options import parse_sink_options

        if overwrite:
            raise ConfigError('a topic cannot be overwritten: write with .mode("append")')
        return TopicWriter(parse_sink_options(self.options, schema, streaming=False))

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """Return the writer of a streaming query; ConfigError for the output mode complete."""
        from millstream.spark.sink import TopicStreamWriter
        from millstream.spark.sink_options import parse_sink_options

        if overwrite:
            raise ConfigError("a topic cannot be overwritten: use the output mode append or update")
        return TopicStreamWriter(parse_sink_options(self.options, schema, streaming=True))


class RangePartition(InputPartition):
    """One task's offsets: ranges that it reads one after the other."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class TopicReader(DataSourceReader):
    """Plans ranges on the driver and reads them on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each task; Spark takes a list and nothing else."""
        tasks = tasks_of(plan_ranges(self._options), self._options)
        spare_garbage_collection()
        return [RangePartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's record batches.

        Without partitions Spark still calls this once, with None.
        """
        return read_partition(partition, self._options, self._schema)


def read_partition(
    partition: InputPartition | None, options: SourceOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of one task; none for no partition."""
    if not isinstance(partition, RangePartition):
        return iter(())
    from pyspark.sql.pandas.types import to_arrow_schema

    from millstream.spark.reader import ReadRules, read_ranges

    rules = ReadRules.of(options, waits_for_brokers=True)
    batches = read_ranges(partition.ranges, rules, to_arrow_schema(schema, timezone="UTC"))
    return _then_spare_garbage_collection(batches)


def _then_spare_garbage_collection(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    spare_garbage_collection()


def check_schema(schema: StructType) -> None:
    """Raise ConfigError for columns that topics lack, or of another type."""
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        found = field.dataType.simpleString()
        if expected is None:
            raise ConfigError(
                f"the schema asks for a column {field.name}, which topics do not have"
            )
        if found != expected:
            raise ConfigError(f"the schema has {field.name} as {found}; it is {expected}")
