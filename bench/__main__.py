"""Run the benchmarks: ``python -m bench [b1 b4 …] [--pairs N] [--quick] [--no-kafka]``."""

from __future__ import annotations

import compileall
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import millstream
from bench import (
    b1,
    b2,
    b4,
    b6,
    b7,
    b8,
    b9,
    b10,
    b11,
    b12,
    b13,
    b15,
    b16,
    b17,
    b18,
    b20,
    b21,
    kernel,
    machine,
    share_groups,
)
from bench.options import QUICK_FRACTION, Options
from bench.process import raise_open_file_limit
from bench.results import RESULTS, results_path, write
from bench.session import Session
from bench.stage import Stage
from bench.tables import JsonValue, Tally

BENCHMARKS = {
    "b1": b1,
    "b2": b2,
    "b4": b4,
    "b6": b6,
    "b7": b7,
    "b8": b8,
    "b9": b9,
    "b10": b10,
    "b11": b11,
    "b12": b12,
    "b13": b13,
    "b15": b15,
    "b16": b16,
    "b17": b17,
    "b18": b18,
    "b20": b20,
    "b21": b21,
    "kernel": kernel,
    "share": share_groups,
}
QUICK_PAIRS = 2
PIPE_WIDTH = 220


def main(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="b1, b2, b4, b6 to b13, b15 to b18, b20, b21, kernel, share; all without any"
        ),
    ] = None,
    pairs: Annotated[int, typer.Option(help="Counted rounds per row.", min=1)] = 5,
    quick: Annotated[bool, typer.Option(help="Try everything out; figures mean nothing.")] = False,
    kafka: Annotated[bool, typer.Option(help="Run Apache Kafka beside.")] = True,
    only: Annotated[str, typer.Option(help="Only rows whose name contains this.")] = "",
    log_gb: Annotated[
        float, typer.Option(help="Gigabytes of log that B9 recovers and compacts.", min=0.1)
    ] = 10.0,
    spark_mb: Annotated[
        int, typer.Option(help="Megabytes of access log that B10 and B11 read.", min=10)
    ] = 1_000,
    partitions: Annotated[
        int, typer.Option(help="Partitions of the topics that B10 and B11 read.", min=1)
    ] = 6,
    data_dir: Annotated[
        Path, typer.Option(help="Where data lies during the run: an ordinary disk.")
    ] = Path("/var/tmp"),
    also_on: Annotated[
        Path | None,
        typer.Option(help="A further interpreter that has Millstream, for B1 and B6.", exists=True),
    ] = None,
    results_dir: Annotated[Path, typer.Option(help="Where the results file goes.")] = RESULTS,
) -> None:
    """Measure Millstream beside Apache Kafka and the raw limits of this machine."""
    chosen = names or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        raise typer.BadParameter(f"there is no benchmark {', '.join(unknown)}")
    if sys.platform != "linux":
        raise typer.BadParameter("the benchmarks read /proc and use epoll: they need Linux")
    # A run that is ended from outside stops what it started, too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    _compile_code()
    raise_open_file_limit()
    options = Options(
        pairs=min(pairs, QUICK_PAIRS) if quick else pairs,
        quick=quick,
        use_kafka=kafka,
        data_dir=data_dir.resolve() / f"millstream-bench-{os.getpid()}",
        only=only,
        log_gb=log_gb,
        spark_mb=spark_mb,
        partitions=partitions,
        also_on=also_on and also_on.absolute(),
    )
    width = None if sys.stdout.isatty() else PIPE_WIDTH
    path = results_path(quick=quick, directory=results_dir)
    _run(chosen, options, Console(width=width), path)


def _compile_code() -> None:
    """Compile Millstream as its installation does. With PYTHONDONTWRITEBYTECODE every process would
    compile anew what has changed since, and a start would take several times as long.
    """
    compileall.compile_dir(str(Path(millstream.__file__).parent), quiet=1)


def _run(chosen: list[str], options: Options, console: Console, path: Path) -> None:
    """Run the chosen benchmarks, print each as it ends, and keep the file up to date."""
    results: dict[str, JsonValue] = {}
    tally = Tally()
    with Stage(options) as stage:
        facts = _facts(stage, options)
        for name, value in facts.items():
            console.print(f"{name}: {value}", highlight=False, markup=False)
        if machine.is_busy() or options.quick:
            console.print("the machine is busy or the run is quick: figures are no evidence")
        session = Session(stage, Console(stderr=True))
        for name in chosen:
            benchmark = BENCHMARKS[name]
            sections = benchmark.run(session)
            for section in sections:
                console.print()
                console.print(section.table)
                tally += section.tally
            for condition in benchmark.CONDITIONS:
                console.print(f"· {condition}", style="dim", highlight=False)
            results[name] = {
                "conditions": list(benchmark.CONDITIONS),
                "tables": [section.data for section in sections],
            }
            facts |= _absences(stage)
            write(path, {"machine": dict(facts), "benchmarks": results})
        for subject, reason in _absences(stage).items():
            console.print(f"{subject}: {reason}", markup=False)
    verdicts = f"targets: {tally.met} met, {tally.missed} missed, {tally.open} without a figure"
    console.print(f"\n{verdicts}\n{path}", highlight=False)


def _facts(stage: Stage, options: Options) -> dict[str, str]:
    counted = f"{options.pairs} rounds after an uncounted one; medians; ratios pair by pair"
    if options.quick:
        counted += f"; quick, 1/{QUICK_FRACTION} of the load"
    return {
        "command": " ".join(["python -m bench", *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **machine.describe(options.data_dir, stage.install, options.also_on),
        "rounds": counted,
    }


def _absences(stage: Stage) -> dict[str, str]:
    """Return why a subject did not run, where one did not."""
    reasons = {
        "Apache Kafka did not run": stage.kafka_absent,
        "Millstream did not run": stage.millstream_absent,
    }
    return {subject: reason for subject, reason in reasons.items() if reason}


if __name__ == "__main__":
    typer.run(main)
