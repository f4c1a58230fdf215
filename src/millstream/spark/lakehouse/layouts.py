"""The layout of a load's table, and what it asks of the columns. Pure."""

from __future__ import annotations

import pyarrow as pa

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.partitioning import check_partition_by
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import Layout


def layout_of(settings: LoadSettings, schema: pa.Schema) -> Layout:
    """Return the layout of a load's table with these columns."""
    return Layout(
        schema=schema,
        event_time=settings.event_time,
        partition_column=settings.partition_column,
        partition_by=settings.partition_by,
        sort_by=settings.sort_by,
        properties=settings.table_properties,
        filled=settings.key_columns,
    )


def check_event_time(settings: LoadSettings, schema: pa.Schema) -> None:
    """Raise ConfigError unless the columns that split the table are there and of the right types:
    that of the days is one of times.
    """
    check_partition_by(settings.partition_by, schema)
    column = settings.event_time
    if column is None:
        return
    if schema.get_field_index(column) < 0 or not pa.types.is_timestamp(schema.field(column).type):
        times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
        raise ConfigError(
            f"the event time has to be a timestamp column, one of {', '.join(times)}, "
            f"not {column!r}"
        )
    day = settings.partition_column
    if day.casefold() in (name.casefold() for name in schema.names):
        raise ConfigError(
            f"there is a column {day} already: name that of the days otherwise (partition column)"
        )
