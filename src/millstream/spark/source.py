"""`format("millstream")` for `spark.read`: a Python data source that yields Arrow alone.

Spark makes the classes here in three places: the driver's JVM asks a Python process for the schema
and for the partitions, once per ``load()``, and every task calls ``read`` in a worker. Filters are
not pushed down: in PySpark 4.3 a pushed filter also applies where the same DataFrame is used
without it, and rows go missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from millstream.model.errors import ConfigError
from millstream.spark.options import SourceOptions, parse_options
from millstream.spark.plan import plan_ranges
from millstream.spark.ranges import OffsetRange
from millstream.spark.schema import COLUMN_TYPES, ddl

if TYPE_CHECKING:
    import pyarrow as pa


class MillstreamDataSource(DataSource):
    """Topics of any Kafka-protocol broker, with the options and columns of the stock connector."""

    @classmethod
    def name(cls) -> str:
        """Return the name that goes into ``format()``; Spark keeps `kafka` for itself."""
        return "millstream"

    def schema(self) -> str:
        """Return the columns; ConfigError names an option that is wrong."""
        return ddl(parse_options(self.options).columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for the columns that ``schema`` names, which are all unless the user
        gave a schema.
        """
        return TopicReader(parse_options(self.options), schema)


class RangePartition(InputPartition):
    """One task's offsets."""

    def __init__(self, offsets: OffsetRange) -> None:
        super().__init__(offsets)
        self.offsets = offsets


class TopicReader(DataSourceReader):
    """Plans ranges on the driver and reads them on executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        _check_schema(schema)
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Return one partition for each range; Spark takes a list and nothing else."""
        return [RangePartition(each) for each in plan_ranges(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a range's record batches.

        Without any partition Spark calls this once all the same, with a partition of None.
        """
        if not isinstance(partition, RangePartition):
            return iter(())
        from pyspark.sql.pandas.types import to_arrow_schema

        from millstream.spark.reader import ReadRules, read_range

        options = self._options
        rules = ReadRules(options.kafka, options.fail_on_data_loss, options.poll_timeout_ms)
        return read_range(partition.offsets, rules, to_arrow_schema(self._schema, timezone="UTC"))


def _check_schema(schema: StructType) -> None:
    for field in schema.fields:
        expected = COLUMN_TYPES.get(field.name)
        found = field.dataType.simpleString()
        if expected is None:
            raise ConfigError(
                f"the schema asks for a column {field.name}, which topics do not have"
            )
        if found != expected:
            raise ConfigError(f"the schema has {field.name} as {found}; it is {expected}")
