"""`millstream lag`: how far a table is behind its topic."""

from __future__ import annotations

from millstream.cli.arguments import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from millstream.cli.output import Row, print_json, print_rows
from millstream.cli.table_arguments import (
    AppId,
    SourceOptions,
    TableArgument,
    TopicArgument,
    existing_table,
    load_id,
    source_options,
)


def lag(
    topic: TopicArgument,
    table: TableArgument,
    app_id: AppId = "",
    option: SourceOptions = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Show what a table lacks: in offsets, in rows, and the age of the oldest missing record."""
    from millstream.spark.lakehouse.lag import table_lag
    from millstream.spark.options import parse_options

    found = existing_table(table)
    options = parse_options(source_options(bootstrap, topic, option), streaming=True)
    rows: list[Row] = [
        {
            "partition": str(each.topic_partition),
            "position": each.position,
            "end": each.end,
            "offsets": each.offsets,
            "rows": each.rows,
            "seconds": round(each.seconds, 1),
        }
        for each in table_lag(options, found, load_id(topic, app_id))
    ]
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
        title=str(found.name),
    )
