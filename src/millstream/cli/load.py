"""`millstream load`: a topic into a table, its past and then its tail."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
)
from millstream.cli.client_options import registry_settings
from millstream.cli.failures import complain
from millstream.cli.load_arguments import (
    DeadLetters,
    DeadLettersTopic,
    DriverSize,
    Engine,
    EventTime,
    Follow,
    Form,
    FormatName,
    FormatOptions,
    Freshness,
    Group,
    Key,
    LineageTo,
    MaintainEvery,
    MaxRejects,
    MetricsHost,
    MetricsPort,
    Mode,
    ModeOption,
    Plan,
    Query,
    Schema,
    TableProperties,
    To,
    layout,
    rejects,
    sizes,
    times,
)
from millstream.cli.load_plan import show_plan
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
    schema_file,
    source_options,
    table_name,
)
from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millstream.spark.lakehouse.load_metrics import MetricsServer
    from millstream.spark.lakehouse.load_observers import LoadObserver
    from millstream.spark.lakehouse.settings import LoadSettings


def load(
    topic: TopicArgument,
    to: To,
    follow: Follow = False,
    form: Form = FormatName.RAW,
    format_option: FormatOptions = None,
    mode: ModeOption = Mode.APPEND,
    key: Key = None,
    key_format: KeyFormat = None,
    schema_registry: SchemaRegistry = None,
    schema: Schema = None,
    query: Query = None,
    event_time: EventTime = None,
    partition_column: PartitionColumn = "date",
    partition_by: PartitionBy = None,
    sort_by: SortBy = None,
    app_id: AppId = "",
    group: Group = None,
    freshness: Freshness = "10s",
    file_size: Annotated[str, typer.Option(help="Target size of a data file.")] = "128MB",
    batch_size: Annotated[str, typer.Option(help="Maximum bytes of log in one commit.")] = "2G",
    driver_size: DriverSize = "8MB",
    dead_letters: DeadLetters = True,
    max_rejects: MaxRejects = "5%",
    dead_letters_topic: DeadLettersTopic = None,
    maintain_every: MaintainEvery = None,
    plan: Plan = False,
    engine: Annotated[Engine, typer.Option(help="Where tasks run.")] = Engine.SPARK,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    option: SourceOptions = None,
    storage_option: StorageOptions = None,
    table_property: TableProperties = None,
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
        group_id=group,
        mode=mode.value,
        key=tuple(key or ()),
        format=form.value,
        format_options=format_options(format_option, key_format),
        registry=registry_settings(schema_registry),
        schema_file=schema_file(schema, storage_option),
        query=None if query is None else _sql(query),
        **rejects(dead_letters, max_rejects, dead_letters_topic),
        **layout(event_time, partition_column, partition_by, sort_by, table_property),
        **times(follow, freshness, maintain_every),
        **sizes(file_size, batch_size, driver_size),
    )
    if plan:
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
