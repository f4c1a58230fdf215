"""Options that the commands on tables share, and what they become."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, TypeAlias

import typer

from millstream.cli.arguments import chosen_bootstrap, key_values
from millstream.cli.client_options import source_settings
from millstream.cli.failures import CommandFailedError
from millstream.model.errors import ConfigError
from millstream.spark.lakehouse.partitioning import PartitionField, parse_partition_by
from millstream.spark.lakehouse.sorting import SortField, parse_sort_by
from millstream.spark.lakehouse.table import (
    TOPIC_FIELD,
    Table,
    TableName,
    fill_topic,
    open_table,
    parse_table_name,
)
from millstream.spark.locations.location import Location, parse_location

TableArgument: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="delta:PATH, iceberg:PATH or parquet:PATH; delta: and iceberg: take "
        "CATALOG.NAMESPACE.TABLE.",
    ),
]
TopicArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic, or several separated by commas.")
]
AppId: TypeAlias = Annotated[
    str,
    typer.Option("--app-id", help="The load's name in the table; by default load:TOPIC."),
]
SchemaRegistry: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--schema-registry",
        metavar="URL|FILE",
        help="Schemas that records refer to by id: the address of a registry "
        "(credentials and TLS by -X schema.registry.…), or a file.",
    ),
]
KeyFormat: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="Format of the keys: string, int, long, …; avro, protobuf or json of the registry.",
    ),
]
PartitionColumn: TypeAlias = Annotated[
    str, typer.Option(metavar="NAME", help="With --event-time: name of the column with the day.")
]
PartitionBy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="PARTS",
        help="Partition the table by day(C), or in Iceberg by several of C, year(C), month(C),"
        " day(C), "
        "hour(C), bucket(N, C), truncate(N, C), separated by commas. Replaces --event-time.",
    ),
]
SortBy: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Sort the rows of each file by these columns, separated by commas, each with or "
        "without desc. An Iceberg table stores the order.",
    ),
]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Option of the object store or the catalogue, for example "
        "AWS_ENDPOINT_URL=http://…; overrides the environment; may be repeated.",
    ),
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


def table_name(
    text: str, option: str = "TABLE", storage_options: Sequence[str] | None = None
) -> TableName:
    """Read a table's name."""
    storage = key_values(storage_options, "--storage-option")
    try:
        return parse_table_name(text, storage_options=storage)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def partition_fields(text: str | None) -> tuple[PartitionField, ...]:
    """Read the partitions of a table."""
    try:
        return () if text is None else parse_partition_by(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--partition-by") from None


def sort_fields(text: str | None) -> tuple[SortField, ...]:
    """Read the order of a table's rows."""
    try:
        return () if text is None else parse_sort_by(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--sort-by") from None


def schema_file(text: str | None, storage_options: Sequence[str] | None) -> Location | None:
    """Read the place of a schema file."""
    storage = key_values(storage_options, "--storage-option")
    try:
        return None if text is None else parse_location(text, storage_options=storage)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--schema") from None


def existing_table(text: str, storage_options: Sequence[str] | None = None) -> Table:
    """Return a table that is there."""
    table = open_table(table_name(text, storage_options=storage_options))
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
    return [(name, fill_topic(table, name)) for name in names]


def source_options(
    bootstrap: str, topic: str, options: Sequence[str] | None, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the options of the source for these topics."""
    return {
        **source_settings(),
        "kafka.bootstrap.servers": chosen_bootstrap(bootstrap),
        "subscribe": topic,
        **(more or {}),
        **key_values(options, "--option"),
    }


def format_options(options: Sequence[str] | None, key_format: str | None) -> dict[str, str]:
    """Return the options of a format, with what the keys are."""
    found = key_values(options, "--format-option")
    if key_format is None:
        return found
    if "key" in found:
        raise typer.BadParameter("the option key says the same", param_hint="--key-format")
    return {**found, "key": key_format}


def load_id(topic: str, app_id: str) -> str:
    """Return the name under which a table keeps a load's offsets."""
    return app_id or f"load:{topic}"
