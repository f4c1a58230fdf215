"""Refuses a load under a new name of topics that the table already has, which would duplicate them.

The name under which offsets are stored is by default made of the topics. So adding a topic to a
load, or naming its topics in another order, would start a new load by accident.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.table import Table, offset_column_of
from millstream.spark.locations.location import Location


def check_not_loaded(table: Table, topics: Collection[str]) -> None:
    """Raise ConfigError when a table holds records of one of these topics."""
    for path in table.files():
        found = sorted(_topics_in(table.data_directory / path) & set(topics))
        if found:
            raise ConfigError(
                f"{table.name} already has records of {', '.join(found)}, from a load with another "
                "name. To continue it, give its app id (load:TOPICS as they were written, "
                "unless one was set); to load the records once more give a new one"
            )


def _topics_in(path: Location) -> set[str]:
    file = pq.ParquetFile(path.open_input())
    column = offset_column_of(file.schema_arrow).removesuffix("offset") + "topic"
    if column not in file.schema_arrow.names:
        return set()  # another program wrote it
    index = next(n for n in range(len(file.schema)) if file.schema.column(n).path == column)
    found: set[str] = set()
    for number in range(file.num_row_groups):
        statistics = file.metadata.row_group(number).column(index).statistics
        if statistics is not None and statistics.has_min_max and statistics.min == statistics.max:
            found.add(statistics.min)
        else:
            topics = file.read_row_group(number, columns=[column])[column]
            found.update(pc.unique(topics.cast(pa.string()).drop_null()).to_pylist())
    return found
