"""`millstream lag`: how far a table is behind its topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from millstream.cli.output import Row, print_json, print_rows
from millstream.cli.table_arguments import (
    AppId,
    SourceOptions,
    StorageOptions,
    TableArgument,
    TopicArgument,
    existing_table,
    load_id,
    source_options,
    tables_of,
)

if TYPE_CHECKING:
    from millstream.spark.lakehouse.lag import PartitionLag


def lag(
    topic: TopicArgument,
    table: TableArgument,
    app_id: AppId = "",
    option: SourceOptions = None,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show how far a table is behind: in offsets, in rows, and the age of the oldest missing
    record.
    """
    from millstream.spark.lakehouse.lag import table_lag
    from millstream.spark.options import load_source, parse_options

    rows: list[Row] = []
    for name, its_table in tables_of(topic, table):
        source = load_source(source_options(bootstrap, name, option))
        options = parse_options(source, streaming=True)
        lags = table_lag(options, existing_table(its_table, storage_option), load_id(name, app_id))
        rows += [_row(each) for each in lags]

    if as_json:
        print_json({"table": table, "partitions": rows})
        return
    print_rows(
        rows,
        {
            "partition": "PARTITION",
            "position": "POSITION",
            "end": "END",
            "offsets": "OFFSETS",
            "rows": "ROWS",
            "seconds": "SECONDS",
        },
        title=table,
    )


def _row(each: PartitionLag) -> Row:
    return {
        "partition": str(each.topic_partition),
        "position": each.position,
        "end": each.end,
        "offsets": each.offsets,
        "rows": each.rows,
        "seconds": round(each.seconds, 1),
    }
