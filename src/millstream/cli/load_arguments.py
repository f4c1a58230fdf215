"""The options of `millstream load`, and what they say as settings of a load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypedDict

import typer

from millstream.cli.arguments import duration_ms, key_values, size_bytes
from millstream.cli.table_arguments import partition_fields, sort_fields
from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from millstream.spark.lakehouse.partitioning import PartitionField
    from millstream.spark.lakehouse.reject_limit import RejectLimit
    from millstream.spark.lakehouse.sorting import SortField


class FormatName(StrEnum):
    """Format of the values."""

    RAW = "raw"
    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    DEBEZIUM = "debezium"


class Mode(StrEnum):
    """What becomes of a record."""

    APPEND = "append"
    UPSERT = "upsert"


class Engine(StrEnum):
    """Where tasks run."""

    SPARK = "spark"
    LOCAL = "local"


To: TypeAlias = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TABLE",
        help="delta:PATH, iceberg:PATH or parquet:PATH, of a directory or a store (s3://, gs://, "
        "abfss://), or CATALOG.NAMESPACE.TABLE behind delta: or iceberg:, of a catalogue.",
    ),
]
FormatOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Option of the format: pattern (text; access_log for web servers), delimiter, "
        "quote, null, "
        "header (csv), definition (avro, protobuf: a file), message (protobuf), framing (avro, "
        "protobuf, json, debezium), schema_id (avro), subject, subject_strategy and record (of a "
        "registry), evolve (json, avro, protobuf, debezium), truncate (debezium: apply or "
        "reject), key (all but raw: string, int, long, …); may be repeated.",
    ),
]
Key: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        help="With --mode upsert: a column that identifies a row; may be repeated. [the record's "
        "key]",
    ),
]
TableProperties: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Property of a table that the load creates, for example "
        '"delta.logRetentionDuration=interval 7 days"; may be repeated.',
    ),
]
Schema: TypeAlias = Annotated[
    str | None,
    typer.Option(help="File that defines the columns; created if it does not exist."),
]
Query: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Spark SQL query that replaces a format: SELECT … FROM source. It must keep "
        "topic, partition and offset.",
    ),
]
Group: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help='Consumer group that shows the progress; "" for none. '
        "[millstream-<table>-<digits of its path>]"
    ),
]
Freshness: TypeAlias = Annotated[
    str, typer.Option(help="With --follow: how long a record may wait for its batch.")
]
DriverSize: TypeAlias = Annotated[
    str,
    typer.Option(help="Batches up to this size are written without a Spark job; 0 for none."),
]
DeadLetters: TypeAlias = Annotated[
    bool,
    typer.Option(help="Put records that cannot be read into TABLE_dead_letters, or fail."),
]
MaxRejects: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="SHARE,COUNT",
        help="Stop the load if more records than this cannot be read: a share of a batch of 1,000 "
        "or more, a number in all, both (5%,200), or none.",
    ),
]
DeadLettersTopic: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        help="Also send those records to this topic, with Kafka Connect's headers.",
    ),
]
MaintainEvery: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help="With --follow: run `millstream maintain` at this interval, for example 1h.",
    ),
]


MetricsPort: TypeAlias = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=0,
        max=65535,
        help="Serve metrics of the load for Prometheus on this port, at /metrics; 0 lets the "
        "system pick.",
    ),
]
MetricsHost: TypeAlias = Annotated[
    str, typer.Option(metavar="ADDRESS", help="The address for --metrics-port.")
]
LineageTo: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--lineage",
        metavar="URL|FILE",
        help="Send OpenLineage events to this URL, or append them to this file; config uses "
        "OpenLineage's own configuration.",
    ),
]


Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep up with the topic until Ctrl-C.")
]
Form: TypeAlias = Annotated[FormatName, typer.Option("--format", help="Format of the values.")]
ModeOption: TypeAlias = Annotated[
    Mode, typer.Option(help="append: a row for each record; upsert: the newest of each key.")
]
EventTime: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Partition the table by the day of this column."),
]
Plan: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Show what the load would create, change, read and reject, and write nothing.",
    ),
]


class _Rejects(TypedDict):
    """Settings of a load for records that cannot be read."""

    dead_letters: bool
    max_rejects: RejectLimit
    dead_letters_topic: str | None


def rejects(dead_letters: bool, max_rejects: str, topic: str | None) -> _Rejects:
    """Return what the options for records that cannot be read say."""
    return {
        "dead_letters": dead_letters,
        "max_rejects": _reject_limit(max_rejects),
        "dead_letters_topic": topic,
    }


class _Layout(TypedDict):
    """Settings of a load for how the files of its table are arranged."""

    event_time: str | None
    partition_column: str
    partition_by: Sequence[PartitionField]
    sort_by: Sequence[SortField]
    table_properties: Mapping[str, str]


def layout(
    event_time: str | None,
    partition_column: str,
    partition_by: str | None,
    sort_by: str | None,
    table_property: list[str] | None,
) -> _Layout:
    """Return what the options for the files of the table say."""
    return {
        "event_time": event_time,
        "partition_column": partition_column,
        "partition_by": partition_fields(partition_by),
        "sort_by": sort_fields(sort_by),
        "table_properties": key_values(table_property, "--table-property"),
    }


class _Times(TypedDict):
    """Settings of a load for when it runs."""

    follow: bool
    freshness_ms: int
    maintain_every_ms: int | None


def times(follow: bool, freshness: str, maintain_every: str | None) -> _Times:
    """Return what the options for times say."""
    return {
        "follow": follow,
        "freshness_ms": duration_ms(freshness, "--freshness"),
        "maintain_every_ms": None
        if maintain_every is None
        else duration_ms(maintain_every, "--maintain-every"),
    }


class _Sizes(TypedDict):
    """Settings of a load that are numbers of bytes."""

    file_bytes: int
    batch_bytes: int
    driver_bytes: int


def sizes(file_size: str, batch_size: str, driver_size: str) -> _Sizes:
    """Return what the options for sizes say."""
    return {
        "file_bytes": size_bytes(file_size, "--file-size"),
        "batch_bytes": size_bytes(batch_size, "--batch-size"),
        "driver_bytes": 0 if driver_size == "0" else size_bytes(driver_size, "--driver-size"),
    }


def _reject_limit(text: str) -> RejectLimit:
    from millstream.spark.lakehouse.reject_limit import parse_reject_limit

    try:
        return parse_reject_limit(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--max-rejects") from None
