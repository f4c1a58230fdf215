"""B18: all cores of a machine: `serve --brokers 2` beside one broker, and beside one Kafka."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from rich.table import Table

from bench.admin import BrokerAnswerError
from bench.load.raw import ProduceSpec
from bench.pairs import KAFKA
from bench.peers.machine import KafkaMachine, Machine, create_topic
from bench.peers.subject import SubjectFailedError
from bench.process import cpu_seconds
from bench.session import Session
from bench.stage import BROKER_SETTINGS, run_load
from bench.tables import JsonValue, Section, Tally

ONE, TWO = "one broker", "two brokers"
LOADS = 2
"""Processes of the load at the same time: one of them alone could be the limit."""
PARTITIONS = 8
"""Partitions, and connections, of each of them."""
WINDOW = 16
GOAL = 1.5
CONDITIONS = (
    f"{LOADS} processes of the raw load on the cores of the brokers, each with {PARTITIONS} "
    f"connections to the leaders of {PARTITIONS} partitions, {WINDOW} requests unanswered on each; "
    "acks=1, one replica, no fsync (Millstream log.flush.policy=os, Apache Kafka its default)",
    "CPU of a request: of all processes of the subject, keeper and supervisor included",
    "loads and brokers share the cores: where the load needs much of them, two brokers gain less",
)


@dataclass(frozen=True)
class Work:
    """What every request carries, and how many of them there are in all."""

    name: str
    batch_bytes: int
    record_bytes: int
    requests: int


WORKS = (
    Work("1 record of 100 B", 0, 100, 160_000),
    Work("batches of 17 KB", 17_000, 1_000, 48_000),
    Work("batches of 256 KB", 256_000, 1_000, 4_000),
)


@dataclass
class Measured:
    """The rounds of one work on one subject."""

    requests_per_s: list[float] = field(default_factory=list)
    mb_per_s: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    failure: str = ""


def run(session: Session) -> list[Section]:
    """Run the works that `--only` leaves, on each subject in turn, round by round."""
    works = [each for each in WORKS if session.options.only in each.name]
    results: dict[str, dict[str, Measured]] = {}
    makers = _subjects(session)
    for work in works:
        results[work.name] = {subject: Measured() for subject in makers}
    rounds = 1 if session.options.quick else session.options.pairs + 1
    for number in range(rounds):
        for subject, make in makers.items():
            directory = session.stage.directory / f"b18 {subject} {number}"
            try:
                _measure(session, make(directory), works, results, subject, counts=number > 0)
            except (OSError, BrokerAnswerError, SubjectFailedError, AssertionError) as error:
                for work in works:
                    results[work.name][subject].failure = str(error)
                session.say(f"{subject} failed: {str(error).splitlines()[-1]}")
            finally:
                shutil.rmtree(directory, ignore_errors=True)
        session.say(f"round {number} is done")
    return [_section(results)]


def _subjects(session: Session) -> dict[str, Callable[[Path], Machine | KafkaMachine]]:
    settings = {**BROKER_SETTINGS, "log.flush.policy": "os"}
    found: dict[str, Callable[[Path], Machine | KafkaMachine]] = {
        ONE: lambda directory: Machine(directory, brokers=1, settings=settings),
        TWO: lambda directory: Machine(directory, brokers=2, settings=settings),
    }
    install = session.stage.install
    if install is not None:
        found[KAFKA] = lambda directory: KafkaMachine(install, directory, settings=BROKER_SETTINGS)
    return found


def _measure(
    session: Session,
    machine: Machine | KafkaMachine,
    works: list[Work],
    results: dict[str, dict[str, Measured]],
    subject: str,
    *,
    counts: bool,
) -> None:
    quick = session.options.quick
    machine.start()
    try:
        for work in works:
            requests = work.requests // 20 if quick else work.requests
            each = max(1, requests // (LOADS * PARTITIONS))
            topics = [session.stage.next_topic() for _ in range(LOADS)]
            ports = [create_topic(machine, topic, PARTITIONS) for topic in topics]
            specs = [
                ProduceSpec(
                    ports=ports[index],
                    broker_pids=(),
                    topic=topic,
                    requests=each,
                    batch_bytes=work.batch_bytes,
                    record_bytes=work.record_bytes,
                    window=WINDOW,
                )
                for index, topic in enumerate(topics)
            ]
            before = sum(map(cpu_seconds, machine.pids))
            with ThreadPoolExecutor(LOADS) as pool:
                reports = list(pool.map(run_load, specs))
            cpu_s = sum(map(cpu_seconds, machine.pids)) - before
            if counts or quick:
                seconds = max(report.seconds for report in reports)
                total = sum(report.requests for report in reports)
                moved = sum(report.moved_bytes for report in reports)
                measured = results[work.name][subject]
                measured.requests_per_s.append(total / seconds)
                measured.mb_per_s.append(moved / seconds / 1e6)
                measured.cpu_us.append(cpu_s / total * 1e6)
    finally:
        machine.stop()


def _section(results: dict[str, dict[str, Measured]]) -> Section:
    title = "B18 · brokers of one machine, saturated"
    table = Table(title=title, title_justify="left")
    for name in ("requests", "subject", "requests/s", "MB/s", "CPU µs", f"/ {ONE}", "target"):
        table.add_column(name)
    rows: list[JsonValue] = []
    tally = Tally()
    for work, subjects in results.items():
        base = _median(subjects[ONE].requests_per_s)
        for subject, measured in subjects.items():
            rate = _median(measured.requests_per_s)
            pairs = zip(measured.requests_per_s, subjects[ONE].requests_per_s, strict=False)
            ratios = [mine / other for mine, other in pairs]
            ratio = _median(ratios) if base else None
            verdict = ""
            if subject == TWO:
                tally.count(None if ratio is None else ratio >= GOAL)
                verdict = f"≥ {GOAL}"
                if ratio is not None:
                    verdict += " met" if ratio >= GOAL else " missed"
            table.add_row(
                work,
                subject,
                _shown(rate, 0) if rate is not None else measured.failure or "–",
                _shown(_median(measured.mb_per_s), 1),
                _shown(_median(measured.cpu_us), 1),
                _shown(ratio, 2),
                verdict,
            )
            rows.append(
                {
                    "work": work,
                    "subject": subject,
                    "requests_per_s": list(measured.requests_per_s),
                    "mb_per_s": list(measured.mb_per_s),
                    "cpu_us": list(measured.cpu_us),
                    "failure": measured.failure,
                }
            )
    return Section(table, {"title": title, "rows": rows}, tally)


def _median(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def _shown(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"
