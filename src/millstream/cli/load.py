"""`millstream load`: a topic into a table, its past and then its tail."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    duration_ms,
    key_values,
    size_bytes,
)
from millstream.cli.client_options import registry_settings
from millstream.cli.failures import complain
from millstream.cli.load_progress import LoadProgress
from millstream.cli.output import counted, human_bytes, print_done, print_json, print_note
from millstream.cli.table_arguments import (
    AppId,
    KeyFormat,
    PartitionBy,
    PartitionColumn,
    SchemaRegistry,
    SortBy,
    SourceOptions,
    StorageOptions,
    TopicArgument,
    format_options,
    partition_fields,
    schema_file,
    sort_fields,
    source_options,
    table_name,
)
from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.spark.lakehouse.load_metrics import MetricsServer
    from millstream.spark.lakehouse.load_observers import LoadObserver
    from millstream.spark.lakehouse.reject_limit import RejectLimit
    from millstream.spark.lakehouse.settings import LoadSettings


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


_To: TypeAlias = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="TABLE",
        help="delta:PATH, iceberg:PATH or parquet:PATH, of a directory or a store (s3://, gs://, "
        "abfss://), or CATALOG.NAMESPACE.TABLE behind delta: or iceberg:, of a catalogue.",
    ),
]
_FormatOptions: TypeAlias = Annotated[
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
_Key: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        help="With --mode upsert: a column that identifies a row; may be repeated. [the record's "
        "key]",
    ),
]
_TableProperties: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="Property of a table that the load creates, for example "
        '"delta.logRetentionDuration=interval 7 days"; may be repeated.',
    ),
]
_Schema: TypeAlias = Annotated[
    str | None,
    typer.Option(help="File that defines the columns; created if it does not exist."),
]
_Query: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="SQL",
        help="Spark SQL query that replaces a format: SELECT … FROM source. It must keep "
        "topic, partition and offset.",
    ),
]
_Group: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help='Consumer group that shows the progress; "" for none. '
        "[millstream-<table>-<digits of its path>]"
    ),
]
_Freshness: TypeAlias = Annotated[
    str, typer.Option(help="With --follow: how long a record may wait for its batch.")
]
_DriverSize: TypeAlias = Annotated[
    str,
    typer.Option(help="Batches up to this size are written without a Spark job; 0 for none."),
]
_DeadLetters: TypeAlias = Annotated[
    bool,
    typer.Option(help="Put records that cannot be read into TABLE_dead_letters, or fail."),
]
_MaxRejects: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="SHARE,COUNT",
        help="Stop the load if more records than this cannot be read: a share of a batch of 1,000 "
        "or more, a number in all, both (5%,200), or none.",
    ),
]
_DeadLettersTopic: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC",
        help="Also send those records to this topic, with Kafka Connect's headers.",
    ),
]
_MaintainEvery: TypeAlias = Annotated[
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


_Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep up with the topic until Ctrl-C.")
]
_Form: TypeAlias = Annotated[FormatName, typer.Option("--format", help="Format of the values.")]
_Mode: TypeAlias = Annotated[
    Mode, typer.Option(help="append: a row for each record; upsert: the newest of each key.")
]
_EventTime: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Partition the table by the day of this column."),
]
_Plan: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--plan",
        help="Show what the load would create, change, read and reject, and write nothing.",
    ),
]


def load(
    topic: TopicArgument,
    to: _To,
    follow: _Follow = False,
    form: _Form = FormatName.RAW,
    format_option: _FormatOptions = None,
    mode: _Mode = Mode.APPEND,
    key: _Key = None,
    key_format: KeyFormat = None,
    schema_registry: SchemaRegistry = None,
    schema: _Schema = None,
    query: _Query = None,
    event_time: _EventTime = None,
    partition_column: PartitionColumn = "date",
    partition_by: PartitionBy = None,
    sort_by: SortBy = None,
    app_id: AppId = "",
    group: _Group = None,
    freshness: _Freshness = "10s",
    file_size: Annotated[str, typer.Option(help="Target size of a data file.")] = "128MB",
    batch_size: Annotated[str, typer.Option(help="Maximum bytes of log in one commit.")] = "2G",
    driver_size: _DriverSize = "8MB",
    dead_letters: _DeadLetters = True,
    max_rejects: _MaxRejects = "5%",
    dead_letters_topic: _DeadLettersTopic = None,
    maintain_every: _MaintainEvery = None,
    plan: _Plan = False,
    engine: Annotated[Engine, typer.Option(help="Where tasks run.")] = Engine.SPARK,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    option: SourceOptions = None,
    storage_option: StorageOptions = None,
    table_property: _TableProperties = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    lineage: LineageTo = None,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Load a topic into a table, each record once.

    The table stores the offsets together with the data, so a load that is interrupted, or run
    again, continues where the table ends. Ctrl-C stops between two batches. `millstream audit`
    proves the result.
    """
    from millstream.spark.lakehouse.settings import LoadSettings

    settings = LoadSettings(
        source=source_options(bootstrap, topic, option),
        table=table_name(to, "--to", storage_option),
        app_id=app_id,
        format=form.value,
        mode=mode.value,
        key=tuple(key or ()),
        format_options=format_options(format_option, key_format),
        registry=registry_settings(schema_registry),
        schema_file=schema_file(schema, storage_option),
        event_time=event_time,
        partition_column=partition_column,
        partition_by=partition_fields(partition_by),
        sort_by=sort_fields(sort_by),
        table_properties=key_values(table_property, "--table-property"),
        follow=follow,
        freshness_ms=duration_ms(freshness, "--freshness"),
        file_bytes=size_bytes(file_size, "--file-size"),
        batch_bytes=size_bytes(batch_size, "--batch-size"),
        driver_bytes=0 if driver_size == "0" else size_bytes(driver_size, "--driver-size"),
        dead_letters=dead_letters,
        max_rejects=_reject_limit(max_rejects),
        dead_letters_topic=dead_letters_topic,
        maintain_every_ms=None
        if maintain_every is None
        else duration_ms(maintain_every, "--maintain-every"),
        group_id=group,
        query=None if query is None else _sql(query),
    )
    if plan:
        from millstream.cli.load_plan import show_plan

        show_plan(settings, as_json=as_json)
        return
    with watched(metrics_port, metrics_host, lineage) as observers_of:
        observers = observers_of(settings)
        run(settings, engine=engine, master=master, as_json=as_json, observers=observers)


@contextlib.contextmanager
def watched(
    metrics_port: int | None, metrics_host: str, lineage: str | None
) -> Iterator[Callable[[LoadSettings], list[LoadObserver]]]:
    """Serve metrics and send lineage for a block; yields what gives the observers of a load."""
    with contextlib.ExitStack() as stack:
        server: MetricsServer | None = None
        if metrics_port is not None:
            from millstream.spark.lakehouse.load_metrics import MetricsServer

            server = stack.enter_context(MetricsServer(metrics_port, metrics_host))
            print(
                f"metrics at http://{metrics_host}:{server.port}/metrics",
                file=sys.stderr,
                flush=True,
            )

        def observers_of(settings: LoadSettings) -> list[LoadObserver]:
            found: list[LoadObserver] = []
            if server is not None:
                found.append(server.load(settings.load_id, str(settings.table)))
            if lineage is not None:
                from millstream.spark.lakehouse.lineage import Lineage

                found.append(Lineage(settings, lineage))
            return found

        yield observers_of


def run(
    settings: LoadSettings,
    *,
    engine: Engine,
    master: str,
    as_json: bool,
    observers: Sequence[LoadObserver] = (),
) -> None:
    """Run a load with progress on the terminal and a summary at the end."""
    from millstream.cli.load_waiting import load_waiting
    from millstream.spark.lakehouse.jobs import run_load
    from millstream.spark.lakehouse.reject_limit import in_words

    should_stop = StopRequest()
    started = time.monotonic()
    shown = LoadProgress(str(settings.table), follow=settings.follow, as_json=as_json)
    with shown as progress, load_waiting():
        run_load(
            settings,
            make_session=None if engine is Engine.LOCAL else lambda: open_session(master),
            on_batch=progress.add,
            should_stop=should_stop,
            observers=observers,
        )
    seconds = max(time.monotonic() - started, 1e-9)
    if as_json:
        print_json(
            {
                "table": str(settings.table),
                "group": None if settings.table.is_per_topic else settings.group or None,
                "batches": progress.batches,
                "rows": progress.rows,
                "deadLetters": progress.dead_letters,
                "reasons": dict(progress.reasons),
                "bytes": progress.bytes,
                "seconds": round(seconds, 3),
            }
        )
    else:
        dead_letters = f", {counted(progress.dead_letters, 'dead letter')}"
        print_done(
            f"{progress.rows:,} rows{dead_letters} into {settings.table} in {seconds:.2f} s "
            f"({human_bytes(progress.bytes / seconds)}/s, "
            f"{counted(progress.batches, 'batch', 'batches')})",
            str(settings.table),
            progress.batches,
            progress.rows,
            progress.dead_letters,
            progress.bytes,
            round(seconds, 3),
        )
        if progress.dead_letters:
            print_note(f"not read: {in_words(progress.reasons)}")
    if should_stop() and not settings.follow:
        complain("stopped before the end; the same command continues where the table ends")
        raise typer.Exit(should_stop.exit_code)


def _reject_limit(text: str) -> RejectLimit:
    from millstream.spark.lakehouse.reject_limit import parse_reject_limit

    try:
        return parse_reject_limit(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--max-rejects") from None


class StopRequest:
    """What asks a load to end, and by which signal; :meth:`__call__` tells whether it was asked.

    The first Ctrl-C or SIGTERM stops between two batches, the second at once.
    """

    def __init__(self) -> None:
        self.exit_code = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def __call__(self) -> bool:
        """True once a signal has come."""
        return bool(self.exit_code)

    def _ask(self, number: int, frame: object) -> None:
        if self.exit_code:
            raise KeyboardInterrupt
        self.exit_code = 128 + number
        print("stopping after this batch; again to stop now", file=sys.stderr, flush=True)


def open_session(master: str) -> SparkSession:
    """Start Spark for a load, on a thread of its own: on the main one it takes Ctrl-C for itself,
    and one that comes while it starts ends in tracebacks of its gateway.
    """
    started: Future[SparkSession] = Future()

    def start() -> None:
        try:
            started.set_result(_start_session(master))
        except BaseException as error:  # for who waits, whatever it is
            started.set_exception(error)

    threading.Thread(target=start, name="start-spark", daemon=True).start()
    return started.result()


def _start_session(master: str) -> SparkSession:
    from millstream.spark import session

    made = session(
        "millstream load",
        master=master,
        settings={"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"},
    )
    made.sparkContext.setLogLevel("ERROR")
    return made


def _sql(text: str) -> Callable[[DataFrame], DataFrame]:
    def query(rows: DataFrame) -> DataFrame:
        from pyspark.errors import AnalysisException

        rows.createOrReplaceTempView("source")
        try:
            return rows.sparkSession.sql(text)
        except AnalysisException as error:  # a syntax error is one too
            reason = next(filter(None, map(str.strip, str(error).splitlines())), "")
            raise ConfigError(f"--query: {reason}") from None

    return query
