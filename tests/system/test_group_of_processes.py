"""A group of real processes over a real broker: one member dies by SIGKILL, two come, and one
that the coordinator assigns to (KIP-848) is paused for longer than its session.

Every record comes at least once, and at no time do committed offsets go back.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

from millstream.client.consumer import Consumer
from millstream.client.producer import Producer
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.slow]

TOPIC = "read-by-many"
GROUP = "many"
PARTITIONS = 8
RECORDS = 24_000
PLACES = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
MEMBER = Path(__file__).with_name("reading_member.py")
DEADLINE_S = 60


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "num.partitions": str(PARTITIONS),
        "group.initial.rebalance.delay.ms": "100",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "1500",
        "group.consumer.min.session.timeout.ms": "1500",
        "group.consumer.heartbeat.interval.ms": "300",
        "group.consumer.min.heartbeat.interval.ms": "300",
    }
    with BrokerProcess(tmp_path / "broker", settings) as process:
        yield process


class Member:
    """One process, and what it wrote."""

    def __init__(self, directory: Path, bootstrap: str, name: str, *arguments: str) -> None:
        self.path = directory / f"{name}.out"
        self.errors = directory / f"{name}.err"
        with self.path.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(MEMBER), bootstrap, GROUP, TOPIC, *arguments],
                stdout=out,
                stderr=err,
            )

    def seen(self) -> set[tuple[int, int]]:
        text = self.path.read_text()
        whole = text[: text.rfind("\n") + 1]
        return {(int(p), int(o)) for p, o in (line.split() for line in whole.splitlines())}

    def has_partitions(self) -> bool:
        return "assigned read" in self.errors.read_text()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Watcher(threading.Thread):
    """Looks at the committed offsets all the time."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="watcher", daemon=True)
        self.bootstrap = bootstrap
        self.committed = dict.fromkeys(PLACES, 0)
        self.went_back: list[tuple[TopicPartition, int, int]] = []
        self.stopping = threading.Event()
        self.looks = 0

    def run(self) -> None:
        with Consumer[bytes, bytes](
            bootstrap_servers=self.bootstrap, group_id=GROUP, enable_auto_commit=False
        ) as consumer:
            while not self.stopping.wait(0.02):
                for place, found in consumer.committed(PLACES).items():
                    offset = 0 if found is None else found.offset
                    if offset < self.committed[place]:
                        self.went_back.append((place, self.committed[place], offset))
                    self.committed[place] = offset
                self.looks += 1


EAGER = "partition.assignment.strategy=range"
COOPERATIVE = "partition.assignment.strategy=cooperative-sticky"
HEARTBEATS = "group.protocol=consumer"


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [(EAGER,), (COOPERATIVE,), (HEARTBEATS,), (HEARTBEATS, EAGER), (COOPERATIVE, HEARTBEATS)],
    ids=["eager", "cooperative", "heartbeats", "heartbeats-eager", "cooperative-heartbeats"],
)
def test_a_member_dies_and_two_come(
    broker: BrokerProcess, tmp_path: Path, settings: tuple[str, ...]
) -> None:
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(bootstrap_servers=broker.bootstrap, linger_ms=2))
        producer.send(TOPIC, b"0", partition=0).result(30)
        watcher = Watcher(broker.bootstrap)
        watcher.start()
        stack.callback(watcher.join)
        stack.callback(watcher.stopping.set)
        members = [
            stack.enter_context(
                Member(
                    tmp_path, broker.bootstrap, f"m{number}", mode, settings[number % len(settings)]
                )
            )
            for number, mode in enumerate(["auto", "sync", "auto", "sync"])
        ]
        wait_for(lambda: all(each.has_partitions() for each in members[:4]))
        for number in range(1, RECORDS):
            producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            if number % 2_000 == 0:
                time.sleep(0.4)
            if number == RECORDS // 3:
                members[0].process.kill()
            if number == RECORDS // 2 and HEARTBEATS in settings:
                # Longer than its session: it comes back as one that was removed.
                paused = members[2 if settings[0] == HEARTBEATS else 3].process
                paused.send_signal(signal.SIGSTOP)
                stack.callback(paused.send_signal, signal.SIGCONT)
                timer = threading.Timer(4, paused.send_signal, [signal.SIGCONT])
                timer.start()
                stack.callback(timer.join)
            if number == RECORDS // 2:
                members += [
                    stack.enter_context(
                        Member(tmp_path, broker.bootstrap, f"late{each}", mode, settings[-1])
                    )
                    for each, mode in enumerate(["auto", "sync"])
                ]
        producer.flush(30)
        wait_for(lambda: all(each.has_partitions() for each in members))
        expected = {(n % PARTITIONS, n // PARTITIONS) for n in range(RECORDS)}
        wait_for(lambda: set[tuple[int, int]]().union(*(m.seen() for m in members)) == expected)
        wait_for(lambda: sum(watcher.committed.values()) == RECORDS)
    assert watcher.went_back == []
    assert watcher.looks > 20
    assert members[0].process.returncode == -9


def wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.1)
