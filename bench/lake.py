"""What B10 and B11 share: the access log as a topic, and Spark sessions that take turns."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from rich.table import Table
from tests.interop.clients.access_log import access_log_bytes

from bench.options import MB
from bench.peers.stock_spark import StockSpark, StockSparkAbsentError, find_stock_spark
from bench.session import Session
from bench.stage import Broker
from bench.tables import NOTHING, JsonValue, Section, Tally
from millstream.client import Admin, Producer
from millstream.client.core.admin.topics import NewTopic

BATCH_BYTES = 64_000
OURS, FILES, STOCK, BOUND = "Millstream", "Millstream, files", "stock connector", "read.parquet"
VALUE_ALONE, PREBUILT = "Millstream, columns=value", "batches made beforehand"
WORKER = Path(__file__).parent / "load" / "spark_worker.py"


class SparkFailedError(Exception):
    """A session did not start, or a request to it failed."""


class SparkWorker:
    """A process with a Spark session on two cores, asked one thing at a time."""

    def __init__(self, directory: Path, stock: StockSpark | None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "directory": str(directory),
            "jars": [] if stock is None else [str(jar) for jar in stock.jars],
        }
        self._errors = (directory / "worker.err").open("w+b")
        python = sys.executable if stock is None else str(stock.python)
        self._process = subprocess.Popen(
            [python, str(WORKER), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._read()

    def ask(self, action: str, **request: object) -> dict[str, Any]:
        """Return the answer to a request; raises SparkFailedError."""
        assert self._process.stdin is not None
        before = self._cpu_seconds()
        print(json.dumps({"action": action, **request}), file=self._process.stdin, flush=True)
        answer = self._read()
        return {**answer, "cpu": round(self._cpu_seconds() - before, 2)}

    def close(self) -> None:
        """End the session."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _cpu_seconds(self) -> float:
        """Return the CPU time of the session, its JVM and its Python workers."""
        root = psutil.Process(self._process.pid)
        total = 0.0
        for each in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                total += times.user + times.system
        return total

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().splitlines()[-1:]
            raise SparkFailedError(f"the session ended: {' '.join(last)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SparkFailedError(answer["error"])
        return answer


@dataclass
class Lake:
    """The broker, the filled topic, and the sessions of one benchmark; a context manager."""

    session: Session
    broker: Broker
    stock_absent: str = ""
    _stack: ExitStack = field(default_factory=ExitStack)
    _workers: dict[bool, SparkWorker] = field(default_factory=dict)
    _stock: StockSpark | None = None

    def __enter__(self) -> Lake:
        try:
            self._stock = find_stock_spark()
        except StockSparkAbsentError as error:
            self.stock_absent = str(error)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        """Where the broker listens."""
        return f"{self.broker.node.host}:{self.broker.node.port}"

    @property
    def directory(self) -> Path:
        """A directory of the benchmark's own."""
        return self.session.stage.directory / "lake"

    def ours(self) -> SparkWorker:
        """Return the session that has Millstream."""
        return self._worker(stock=False)

    def stock(self) -> SparkWorker:
        """Return the session that has the stock connector; raises SparkFailedError."""
        if self._stock is None:
            raise SparkFailedError(self.stock_absent)
        return self._worker(stock=True)

    def source(self, topic: str, *, files: bool = False) -> dict[str, str]:
        """Return the options of a read."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}
        if files:
            options["logDirs"] = str(self.session.stage.directory / "millstream-os" / "data")
        return options

    def filled(self, times: int = 1) -> tuple[str, int, int]:
        """Return the access log's topic, its records and their bytes, filled on first need.

        ``times`` as large as ``--spark-mb`` says.
        """
        lines = access_log_bytes().splitlines()
        return self.filled_with(f"bench-access-log-{times}", lines, times)

    def filled_with(self, topic: str, values: list[bytes], times: int = 1) -> tuple[str, int, int]:
        """Return the same of values that stand for the log's lines, one for each."""
        wanted = self.session.options.scaled(times * self.session.options.spark_mb * MB)
        repeats = max(wanted // sum(map(len, access_log_bytes().splitlines())), 1)
        if topic not in self.broker.filled:
            partitions = self.session.options.partitions
            create(self.bootstrap, topic, partitions)
            fill(self.bootstrap, topic, values, repeats, partitions=partitions)
            self.broker.filled.add(topic)
        return topic, repeats * len(values), repeats * sum(map(len, values))

    def _worker(self, *, stock: bool) -> SparkWorker:
        if stock not in self._workers:
            name = "stock" if stock else "ours"
            worker = SparkWorker(self.directory / name, self._stock if stock else None)
            self._stack.callback(worker.close)
            self._workers[stock] = worker
        return self._workers[stock]


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Make a topic."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions)]).get_all()


def fill(
    bootstrap: str,
    topic: str,
    lines: list[bytes],
    repeats: int,
    *,
    partitions: int,
    batch_bytes: int = BATCH_BYTES,
) -> None:
    """Write the lines over and over, in batches that go to the partitions in turn.

    With the time of writing: retention takes older records away while a long run goes on.
    """
    stamp_ms = int(time.time() * 1000)
    batches: list[list[bytes]] = [[]]
    size = 0
    for line in lines:
        if size >= batch_bytes:
            batches.append([])
            size = 0
        batches[-1].append(line)
        size += len(line)
    with Producer(bootstrap_servers=bootstrap, acks=1, batch_size=2 * batch_bytes) as producer:
        for number in range(repeats):
            sent = [
                producer.send_values(
                    values, topic, partition=(number + index) % partitions, timestamp_ms=stamp_ms
                )
                for index, values in enumerate(batches)
            ]
            for each in sent:
                each.result()


@dataclass
class Measured:
    """One subject's samples in one row: seconds, and whatever else its answers held."""

    subject: str
    ask: Callable[[], Mapping[str, Any]]
    answers: list[Mapping[str, Any]] = field(default_factory=list)
    failure: str = ""

    @property
    def cpu(self) -> float | None:
        """The median of the CPU seconds of the session and all its processes."""
        found = [float(each["cpu"]) for each in self.answers]
        return statistics.median(found) if found else None

    @property
    def seconds(self) -> float | None:
        """The median."""
        found = [float(each["seconds"]) for each in self.answers]
        return statistics.median(found) if found else None


@dataclass
class LakeRow:
    """One line: the same work by several subjects, over ``amount`` of ``unit``.

    ``targets``: (words, subject or "", least): ours divided by that subject's, or ours alone.
    """

    name: str
    unit: str
    amount: float
    subjects: list[Measured]
    targets: tuple[tuple[str, str, float], ...] = ()
    rows: int = 0
    """Rows that an answer has to tell if it tells any."""
    told: str = ""
    """What to show of the answers in place of their time, divided by ``amount``."""
    checksum: str = ""
    """That of the first answer which has one."""

    def ask(self, subject: Measured) -> Mapping[str, Any]:
        """Return a subject's answer; SparkFailedError when it has not all rows, or others."""
        answer = subject.ask()
        if self.rows and answer["rows"] not in (0, self.rows):
            raise SparkFailedError(f"{answer['rows']} rows of {self.rows}")
        self.checksum = self.checksum or answer.get("checksum", "")
        if answer.get("checksum", self.checksum) != self.checksum:
            raise SparkFailedError("its rows are not those of the first landing")
        return answer

    def rate(self, subject: str) -> float | None:
        """Return ``amount`` per second, or seconds where there is no amount, or what is told."""
        for each in self.subjects:
            if each.subject != subject or each.seconds is None:
                continue
            if self.told:
                told = [float(one[self.told]) for one in each.answers]
                return statistics.median(told) / self.amount
            return self.amount / each.seconds if self.amount else each.seconds
        return None

    def verdicts(self) -> list[tuple[str, bool | None]]:
        """Return each target with its figure, and whether it is met."""
        found: list[tuple[str, bool | None]] = []
        ours = self.rate(OURS)
        for words, subject, least in self.targets:
            theirs = self.rate(subject) if subject else 1.0
            if ours is None or theirs is None:
                found.append((words, None))
                continue
            found.append((f"{words} ({ours / theirs:.2f})", ours / theirs >= least))
        return found


def run_rows(session: Session, rows: list[LakeRow]) -> None:
    """Run every row: an uncounted round, then the counted ones, in which subjects take turns."""
    for row in rows:
        for number in range(session.options.pairs + 1):
            for each in row.subjects:
                if each.failure:
                    continue
                try:
                    answer = row.ask(each)
                except (SparkFailedError, OSError) as error:
                    each.failure = str(error).splitlines()[0][:300]
                    session.say(f"{row.name}, {each.subject} failed: {each.failure}")
                    continue
                if number:
                    each.answers.append(answer)
        session.say(f"{row.name}: done")


def lake_section(title: str, rows: list[LakeRow]) -> Section:
    """Show rows with every subject's figure, its CPU seconds, and how ours compares."""
    table = Table(title=title, title_justify="left")
    subjects = list(dict.fromkeys(each.subject for row in rows for each in row.subjects))
    for heading in ("row", "unit", *subjects, "targets"):
        table.add_column(heading, no_wrap=heading in ("row", "unit"))
    data: list[JsonValue] = []
    tally = Tally()
    for row in rows:
        verdicts = row.verdicts()
        for _, met in verdicts:
            tally.count(met)
        shown = [
            words + ("" if met is None else " met" if met else " missed") for words, met in verdicts
        ]
        rates = {subject: row.rate(subject) for subject in subjects}
        costs = {each.subject: each.cpu for each in row.subjects}
        cells = [
            NOTHING
            if rate is None
            else f"{rate:,.2f}" + ("" if row.told else f" ({costs.get(subject) or 0:.1f} s)")
            for subject, rate in rates.items()
        ]
        table.add_row(row.name, row.unit, *cells, "; ".join(shown) or NOTHING)
        data.append(
            {
                "row": row.name,
                "unit": row.unit,
                "subjects": {
                    each.subject: {
                        "median": row.rate(each.subject),
                        "cpu seconds": each.cpu,
                        "failure": each.failure or None,
                        "samples": [dict(answer) for answer in each.answers],
                    }
                    for each in row.subjects
                },
                "targets": [[words, met] for words, met in verdicts],
            }
        )
    return Section(table, {"title": title, "rows": data}, tally)
