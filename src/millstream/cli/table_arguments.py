"""Options that the commands on tables share, and what they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from millstream.cli.arguments import key_values
from millstream.cli.failures import CommandFailedError
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.table import (
    TOPIC_FIELD,
    Table,
    TableName,
    open_table,
    parse_table_name,
)

TableArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TABLE", help="delta:PATH, iceberg:PATH or parquet:PATH.")
]
TopicArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic; several with commas between them.")
]
AppId: TypeAlias = Annotated[
    str,
    typer.Option("--app-id", help="The load's name in the table; load:TOPIC unless given."),
]
PartitionColumn: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="With --event-time: the column of the days.")
]
SourceOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="KEY=VALUE",
        help='An option of format("millstream"), such as failOnDataLoss=false or '
        "kafka.isolation.level=read_uncommitted; may be repeated.",
    ),
]


def table_name(text: str, option: str = "TABLE") -> TableName:
    """Read a table's name."""
    try:
        return parse_table_name(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def existing_table(text: str) -> Table:
    """Return a table that is there."""
    table = open_table(table_name(text))
    if not table.exists():
        raise CommandFailedError(f"there is no table {text}")
    return table


def tables_of(topics: str, table: str) -> list[tuple[str, str]]:
    """Return topics and the tables they are in: one for each topic where the table's name says so,
    else all of them in one.
    """
    if TOPIC_FIELD not in table:
        return [(topics, table)]
    names = [name.strip() for name in topics.split(",") if name.strip()]
    return [(name, table.replace(TOPIC_FIELD, name)) for name in names]


def source_options(
    bootstrap: str, topic: str, options: Sequence[str] | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the options of the source for these topics."""
    return {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        **(more or {}),
        **key_values(options, "--option"),
    }


def load_id(topic: str, app_id: str) -> str:
    """Return the name under which a table keeps a load's offsets."""
    return app_id or f"load:{topic}"
