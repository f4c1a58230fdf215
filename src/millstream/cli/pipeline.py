"""`millstream pipeline`: several loads from one file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.arguments import AsJson
from millstream.cli.failures import FAILED, sentence
from millstream.cli.load import StopRequest, watched
from millstream.cli.load_arguments import Engine, LineageTo, MetricsHost, MetricsPort
from millstream.cli.output import print_json, print_rows
from millstream.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millstream.spark.lakehouse.batches import BatchReport
    from millstream.spark.lakehouse.load_observers import LoadObserver
    from millstream.spark.lakehouse.settings import LoadSettings

app = typer.Typer(help="Several loads described in one pipeline.toml.", no_args_is_help=True)

PipelineFile = Annotated[Path, typer.Argument(metavar="PIPELINE.TOML", help="The loads.")]


@app.command()
def check(pipeline_file: PipelineFile = Path("pipeline.toml")) -> None:
    """Read the file and show what it would do."""
    print_rows(
        [
            {
                "load": name,
                "topics": each.source.get("subscribe") or each.source.get("subscribePattern", ""),
                "table": str(each.table),
                "format": each.format,
                "follow": each.follow,
            }
            for name, each in _read(pipeline_file).items()
        ],
        {
            "load": "LOAD",
            "topics": "TOPICS",
            "table": "TABLE",
            "format": "FORMAT",
            "follow": "FOLLOW",
        },
    )


@app.command()
def run(
    pipeline_file: PipelineFile = Path("pipeline.toml"),
    only: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this load; may be repeated.")
    ] = None,
    engine: Annotated[Engine, typer.Option(help="Where tasks run.")] = Engine.SPARK,
    master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    lineage: LineageTo = None,
    as_json: AsJson = False,
) -> None:
    """Run all loads of the file at the same time, in one Spark session.

    --command-config and -X set how the brokers are reached, unless the file does. Loads with
    follow = true run until Ctrl-C. A failed load does not stop the others; the exit code is then 1.
    """
    loads = _read(pipeline_file)
    for name in only or ():
        if name not in loads:
            raise ConfigError(
                f"{pipeline_file}: there is no load {name}; loads: {', '.join(loads)}"
            )
    chosen = {name: loads[name] for name in only} if only else loads
    with watched(metrics_port, metrics_host, lineage) as observers_of:
        pipeline = _Pipeline(chosen, engine, master, observers_of)
        pipeline.run()
    if as_json:
        print_json(pipeline.summary())
    else:
        print_rows(
            pipeline.summary(),
            {
                "load": "LOAD",
                "batches": "BATCHES",
                "rows": "ROWS",
                "deadLetters": "DEAD LETTERS",
                "why": "WHY",
                "error": "ERROR",
            },
        )
    raise typer.Exit(pipeline.exit_code)


def _read(file: Path) -> dict[str, LoadSettings]:
    from millstream.cli.client_options import (
        given_bootstrap,
        registry_settings,
        source_settings,
    )
    from millstream.spark.lakehouse.pipeline_file import read_pipeline

    common = source_settings()
    bootstrap = given_bootstrap()
    if bootstrap is not None:
        common["kafka.bootstrap.servers"] = bootstrap
    return read_pipeline(file, common, registry_settings(None))


class _Pipeline:
    """A thread for each load; one Spark session for all."""

    def __init__(
        self,
        loads: dict[str, LoadSettings],
        engine: Engine,
        master: str,
        observers_of: Callable[[LoadSettings], list[LoadObserver]],
    ) -> None:
        self._loads = loads
        self._observers_of = observers_of
        self._engine = engine
        self._master = master
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._reports: dict[str, list[BatchReport]] = {name: [] for name in loads}
        self.errors: dict[str, str] = {}
        self.should_stop = StopRequest()
        self._interrupted = False

    @property
    def exit_code(self) -> int:
        """0; 1 when a load failed; 128 and the signal when one came before a load's own end."""
        if self.errors:
            return FAILED
        return self.should_stop.exit_code if self._interrupted else 0

    def run(self) -> None:
        from millstream.cli.load_waiting import load_waiting

        threads = [
            threading.Thread(target=self._load, args=(name, settings), name=name)
            for name, settings in self._loads.items()
        ]
        with load_waiting():
            for thread in threads:
                thread.start()
            for thread in threads:
                while thread.is_alive():
                    thread.join(0.2)
        if self._session is not None:
            self._session.stop()

    def summary(self) -> list[dict[str, str | int | None]]:
        from millstream.spark.lakehouse.reject_limit import add_reasons, in_words

        return [
            {
                "load": name,
                "batches": len(reports),
                "rows": sum(each.rows for each in reports),
                "deadLetters": sum(each.dead_letters for each in reports),
                "why": in_words(add_reasons(each.reasons for each in reports)),
                "error": self.errors.get(name),
            }
            for name, reports in self._reports.items()
        ]

    def _load(self, name: str, settings: LoadSettings) -> None:
        from millstream.spark.lakehouse.jobs import run_load

        try:
            run_load(
                settings,
                make_session=None if self._engine is Engine.LOCAL else self._shared_session,
                give_back=self._give_back,
                on_batch=lambda report: self._progressed(name, report),
                should_stop=self.should_stop,
                observers=self._observers_of(settings),
            )
        except Exception as error:  # one load's end is not the others'
            self.errors[name] = sentence(error)
            print(f"{name}: {self.errors[name]}", file=sys.stderr, flush=True)
        else:
            if self.should_stop() and not settings.follow:
                self._interrupted = True

    def _progressed(self, name: str, report: BatchReport) -> None:
        self._reports[name].append(report)
        print(
            f"{name}: batch {report.batch}, {report.rows:,} rows, {report.behind:,} behind",
            file=sys.stderr,
            flush=True,
        )

    def _shared_session(self) -> SparkSession:
        from millstream.cli.load import open_session

        with self._lock:
            if self._session is None:
                self._session = open_session(self._master)
            return self._session

    def _give_back(self, session: SparkSession) -> None:
        """Let go of the session only when it is dead: the others use it too."""
        from millstream.spark.lakehouse.jobs import is_alive, stop_session

        with self._lock:
            if session is self._session and not is_alive(session):
                self._session = None
                stop_session(session)
