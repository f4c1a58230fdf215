"""`millstream dlq`: records that a table's format could not read."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from millstream.cli.arguments import AsJson
from millstream.cli.client_options import registry_settings
from millstream.cli.load_arguments import FormatName
from millstream.cli.output import Row, counted, print_done, print_json, print_note, print_rows
from millstream.cli.table_arguments import (
    AppId,
    KeyFormat,
    PartitionBy,
    PartitionColumn,
    SchemaRegistry,
    StorageOptions,
    TableArgument,
    existing_table,
    format_options,
    load_id,
    partition_fields,
    schema_file,
    table_name,
)

app = typer.Typer(help="Dead letters: records that a load could not read.", no_args_is_help=True)


@app.command()
def show(
    table: TableArgument,
    limit: Annotated[int, typer.Option(min=1, help="How many records to show.")] = 20,
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Show the dead letters of a table and how many there are for each reason."""
    import pyarrow.parquet as pq

    from millstream.spark.lakehouse.dead_letter_commits import settle_all
    from millstream.spark.lakehouse.table import dead_letters_of, open_table

    name = existing_table(table, storage_option).name
    settle_all(name)
    dead_letters = open_table(dead_letters_of(name))
    rows: list[Row] = []
    reasons: Counter[str] = Counter()
    for path in dead_letters.files() if dead_letters.exists() else ():
        for row in (
            pq.ParquetFile((dead_letters.data_directory / path).open_input()).read().to_pylist()
        ):
            reasons[row["reason"]] += 1
            if len(rows) < limit:
                rows.append(
                    {
                        "topic": row["topic"],
                        "partition": row["partition"],
                        "offset": row["offset"],
                        "reason": row["reason"],
                        "value": (row["value"] or b"")[:80].decode("utf-8", "backslashreplace"),
                    }
                )
    if as_json:
        print_json({"count": reasons.total(), "reasons": dict(reasons), "records": rows})
        return
    names = ("topic", "partition", "offset", "reason", "value")
    print_rows(rows, {each: each.upper() for each in names})
    print_note(f"{counted(reasons.total(), 'dead letter')}, {counted(len(reasons), 'reason')}")


@app.command()
def replay(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="As given to the load.")],
    table: TableArgument,
    form: Annotated[FormatName, typer.Option("--format", help="Format of the values.")],
    format_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Option of the format, as in `load`; may be repeated."
        ),
    ] = None,
    key_format: KeyFormat = None,
    schema_registry: SchemaRegistry = None,
    schema: Annotated[str | None, typer.Option(help="File that defines the columns.")] = None,
    event_time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="As given to the load.")
    ] = None,
    partition_column: PartitionColumn = "date",
    partition_by: PartitionBy = None,
    app_id: AppId = "",
    storage_option: StorageOptions = None,
    as_json: AsJson = False,
) -> None:
    """Read every dead letter again, after the schema file or an option has changed.

    Records that can be read now are written to the table, once, and removed from the dead letters.
    """
    from millstream.spark.lakehouse.dead_letters import replay as run_replay
    from millstream.spark.lakehouse.settings import LoadSettings

    done = run_replay(
        LoadSettings(
            source={"subscribe": topic},
            table=table_name(table, storage_options=storage_option),
            app_id=load_id(topic, app_id),
            format=form.value,
            format_options=format_options(format_option, key_format),
            registry=registry_settings(schema_registry),
            schema_file=schema_file(schema, storage_option),
            event_time=event_time,
            partition_column=partition_column,
            partition_by=partition_fields(partition_by),
        )
    )
    if as_json:
        print_json(
            {
                "tried": done.tried,
                "written": done.written,
                "stillUnreadable": done.still_unreadable,
            }
        )
    else:
        print_done(
            f"{counted(done.tried, 'dead letter')} tried, {counted(done.written, 'row')} written, "
            f"{done.still_unreadable:,} still unreadable",
            topic,
            done.tried,
            done.written,
            done.still_unreadable,
        )
