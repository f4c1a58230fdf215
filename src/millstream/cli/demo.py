"""`millstream demo`: the main job on one machine, from a web server's log to a Parquet table.

A broker process of its own on a port that the system picks, a producer, a group of two consumers,
PySpark that loads the topic. Every count is compared with the input's.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from millstream.cli.access_log import count_statuses, generate_lines
from millstream.cli.demo_broker import DemoBroker
from millstream.cli.demo_clients import GroupReport, consume_as_group, produce_lines
from millstream.cli.demo_report import Report
from millstream.cli.demo_spark import SparkLoad, check_spark
from millstream.cli.failures import FAILED, TERMINATED, CommandFailedError
from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

TOPIC: Final = "access-log"
PARTITIONS: Final = 4
GROUP: Final = "demo"
SMALLEST_SEGMENT_BYTES: Final = 1024 * 1024
"""What Kafka allows; the segments are small, so that there are several of them to look at."""

_SEGMENTS: Final = 20


def demo(
    log: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="Your own access log; by default lines are generated."
        ),
    ] = None,
    lines: Annotated[int, typer.Option(min=1, help="Number of lines to generate.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Seed of the generated lines.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", help="Directory to work in, which is kept; by default a temporary one."
        ),
    ] = None,
) -> None:
    """Run the main job: access log, topic, consumer group, Spark, Parquet, and what each took."""
    check_spark()
    report = Report()
    # Asked to end, Python would go without stopping the broker or cleaning up.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(TERMINATED))
    with ExitStack() as stack:
        working_directory = stack.enter_context(_working_directory(directory))
        with report.step("take the lines"):
            source = working_directory / "access.log" if log is None else log
            if log is None:
                source.write_text("".join(f"{line}\n" for line in generate_lines(lines, seed)))
            counted = count_statuses(source)
        report.say(f"{sum(counted.values()):,} lines of {source}")
        with report.step("start the broker"):
            broker = stack.enter_context(DemoBroker(working_directory))
        report.say(broker.first_line)
        _run(report, working_directory, source, broker, counted)
    report.times()
    if report.differences:
        raise typer.Exit(FAILED)


def _run(
    report: Report, working_directory: Path, source: Path, broker: DemoBroker, counted: Counter[str]
) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        segment_bytes = max(source.stat().st_size // _SEGMENTS, SMALLEST_SEGMENT_BYTES)
        topic = NewTopic(TOPIC, PARTITIONS, 1, {"segment.bytes": str(segment_bytes)})
        admin.create_topics([topic]).get_all()
    with report.step("produce"):
        produced = produce_lines(broker.bootstrap, TOPIC, source)
    report.check("records produced", produced, sum(counted.values()))
    with report.step("consume as a group of two"):
        group = consume_as_group(broker.bootstrap, TOPIC, GROUP, produced)
    _report_group(report, group, produced)
    with SparkLoad(working_directory, broker.bootstrap, TOPIC) as spark:
        with report.step("start Spark"):
            spark.wait_started()
        with report.step("load the topic into Parquet"):
            statuses = spark.result()
    report.statuses(statuses)
    report.check("rows in Parquet", sum(statuses.values()), produced)
    report.check("hits by status", dict(statuses), dict(counted))
    report.segments(broker.data_directory, TOPIC)


def _report_group(report: Report, group: GroupReport, produced: int) -> None:
    for stage, assignment in group.assignments:
        report.say(f"{stage}: {assignment}")
    shares = ", ".join(f"{name} {count:,}" for name, count in group.consumed.items())
    report.say(f"records consumed: {shares}")
    report.check("records consumed", sum(group.consumed.values()), produced)


@contextmanager
def _working_directory(directory: Path | None) -> Iterator[Path]:
    """Give the place to work in; a temporary one is removed."""
    if directory is not None:
        if directory.exists() and any(directory.iterdir()):
            raise CommandFailedError(f"{directory} is not empty: give the demo an empty directory")
        directory.mkdir(parents=True, exist_ok=True)
        yield directory.resolve()
        return
    temporary = Path(tempfile.mkdtemp(prefix="millstream-demo-"))
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
