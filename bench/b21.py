"""B21: how long a test waits for its brokers (`millstream.testing`), and what a start leaves."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.table import Table

from bench.session import Session
from bench.tables import JsonValue, Section, Tally
from millstream.model.topic import TopicPartition
from millstream.testing import Kafka, start_kafka

TITLE = "B21 · brokers for tests"
CONDITIONS = (
    "start: from the call until every broker listens and the cluster has a controller; the code of "
    "the test's side is loaded already",
    "first record: a topic is made, a record is produced with acks=all and read back",
    "again: kill −9 of one broker, and its start until clients can use it",
    "left behind: processes, listening sockets and files after kill −9 of the test",
)

_KILLED = """
import sys, time
from millstream.testing import start_kafka
kafka = start_kafka(brokers=int(sys.argv[1]))
print(kafka.host.process_id, *[each.process_id for each in kafka.brokers], flush=True)
time.sleep(600)
"""


@dataclass
class Measured:
    """One row: its name, its unit, the goal, and a value for each round."""

    name: str
    unit: str
    goal: float | None
    values: list[float] = field(default_factory=list)


def run(session: Session) -> list[Section]:
    """Measure one broker and three, round by round."""
    rows: dict[str, Measured] = {}

    def note(name: str, value: float, *, unit: str = "ms", goal: float | None = None) -> None:
        rows.setdefault(name, Measured(name, unit, goal)).values.append(value)

    rounds = 1 if session.options.quick else session.options.pairs + 1
    for number in range(rounds):
        counts = number > 0 or rounds == 1
        for count, goal in ((1, 300.0), (3, 1_000.0)):
            name = "one broker" if count == 1 else "three brokers"
            if session.options.only not in name:
                continue
            measured = _round(count)
            if counts:
                note(f"{name}: start", measured["start"], goal=goal)
                note(f"{name}: first record", measured["record"])
                note(f"{name}: killed and started again", measured["again"])
                note(f"{name}: end", measured["end"])
                note(f"{name}: left behind", _left(count), unit="things", goal=0.0)
        session.say(f"round {number} is done")
    return [_section(list(rows.values()))]


def _round(count: int) -> dict[str, float]:
    found: dict[str, float] = {}
    kafka: Kafka | None = None

    def timed(name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        found[name] = (time.perf_counter() - began) * 1_000

    def start() -> None:
        nonlocal kafka
        kafka = start_kafka(count)

    timed("start", start)
    assert kafka is not None
    timed("record", lambda: _record(kafka))
    timed("again", lambda: _kill_and_start(kafka))
    timed("end", kafka.close)
    return found


def _kill_and_start(kafka: Kafka) -> None:
    kafka.broker(0).kill()
    kafka.broker(0).start()


def _record(kafka: Kafka) -> None:
    topic = kafka.topic("t")
    with kafka.producer(linger_ms=0) as producer:
        producer.send(topic, b"1").result(60)
    with kafka.consumer(group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while not consumer.poll(1_000):
            pass


def _left(count: int) -> float:
    """Return how many processes and files outlive a test that is killed, by five seconds."""
    with tempfile.TemporaryDirectory() as directory:
        test = subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(count)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": directory},
        )
        assert test.stdout is not None
        with test.stdout:
            host, *brokers = map(int, test.stdout.readline().split())
            test.kill()
            test.wait()
        deadline = time.monotonic() + 5
        while (left := _there([host, *brokers], Path(directory))) and time.monotonic() < deadline:
            time.sleep(0.02)
    return float(left)


def _there(processes: list[int], directory: Path) -> int:
    running = 0
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            running += psutil.Process(each).status() != psutil.STATUS_ZOMBIE
    return running + len(list(directory.iterdir()))


def _section(rows: list[Measured]) -> Section:
    table = Table(title=TITLE, title_justify="left")
    for name in ("what", "median", "least", "most", "unit", "goal"):
        table.add_column(name)
    tally = Tally()
    data: list[JsonValue] = []
    for row in rows:
        median = statistics.median(row.values)
        verdict = ""
        if row.goal is not None:
            tally.count(median <= row.goal)
            verdict = f"≤ {row.goal:g} {'met' if median <= row.goal else 'missed'}"
        shown = (f"{value:.0f}" for value in (median, min(row.values), max(row.values)))
        table.add_row(row.name, *shown, row.unit, verdict)
        data.append({"what": row.name, "unit": row.unit, "values": list(row.values)})
    table.caption = "\n".join(CONDITIONS)
    return Section(table, {"title": TITLE, "rows": data, "conditions": list(CONDITIONS)}, tally)
