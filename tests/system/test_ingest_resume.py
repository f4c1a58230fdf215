"""`millstream ingest --resume`: killed at any moment, and over rotations, each line comes once."""

from __future__ import annotations

import gzip
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.broker_process import BrokerProcess
from tests.waiting import wait_until

from millstream.client import Admin, Consumer
from millstream.client.core.admin.offsets import LATEST
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

Topics = Callable[[], str]
PARTITIONS = 3
ROUNDS = 4


class Ingest:
    """The command as a process; a test leaves none behind."""

    running: ClassVar[list[subprocess.Popen[str]]] = []

    def __init__(self, broker: BrokerProcess, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millstream.cli.main", "ingest", *words],
            env={**os.environ, "MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        Ingest.running.append(self.process)

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Send a signal, if any, and wait; return the exit code and what was told."""
        if number is not None:
            self.process.send_signal(number)
        _, told = self.process.communicate(timeout=60)
        return self.process.returncode, told


def committed_lines(broker: BrokerProcess, topic: str) -> list[bytes]:
    """Return what a reader of committed records sees, up to what is the end now."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = []
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
    ) as consumer:
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        while any(consumer.position(each) < ends[each] for each in places):
            found += [record.value or b"" for record in consumer.poll(0.5)]
    return found


def written(broker: BrokerProcess, topic: str) -> int:
    """Return how many offsets of the topic are taken, by lines and by ends of transactions."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    try:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            ends = admin.list_offsets(dict.fromkeys(places, LATEST)).get_all()
    except KafkaError:
        return 0
    return sum(0 if each is None else each.offset for each in ends.values())


def wait_until_it_writes(broker: BrokerProcess, topic: str) -> None:
    before = written(broker, topic)
    wait_until(lambda: written(broker, topic) > before, "lines come")


class Writer:
    """Appends numbered lines to a log from a thread, and rotates it on request."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._file = path.open("ab", buffering=0)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._file.close()

    def _run(self) -> None:
        while not self._ended.wait(0.002):
            with self._lock:
                # Lines come in pieces, as a writer's buffer is flushed.
                for _ in range(20):
                    text = b"line %d of the log\n" % self.count
                    self._file.write(text[:7])
                    self._file.write(text[7:])
                    self.count += 1

    def rename(self) -> None:
        """As logrotate does it with `create`: the writer goes on in the old file for a while."""
        self._shift()
        self.path.rename(self.path.with_name("app.log.1"))
        time.sleep(0.05)
        with self._lock:
            self._file.close()
            self._file = self.path.open("ab", buffering=0)

    def copy_and_truncate(self) -> None:
        """As logrotate does it with `copytruncate`, without a line between the two."""
        self._shift()
        with self._lock:
            shutil.copy2(self.path, self.path.with_name("app.log.1"))
            os.truncate(self.path, 0)

    def _shift(self) -> None:
        for number in range(50, 0, -1):
            old = self.path.with_name(f"app.log.{number}")
            if old.exists():
                old.rename(self.path.with_name(f"app.log.{number + 1}"))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    for each in Ingest.running:
        if each.poll() is None:
            each.kill()
            each.communicate()
    Ingest.running.clear()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with Writer(tmp_path / "app.log") as writer:
        yield writer


def expected(count: int) -> Counter[bytes]:
    return Counter(b"line %d of the log" % number for number in range(count))


@pytest.mark.parametrize("rotation", ["rename", "copy_and_truncate"])
def test_kills_and_rotations_lose_and_double_nothing(
    broker: BrokerProcess, new_topic: Topics, writer: Writer, rotation: str
) -> None:
    topic, rng = new_topic(), random.Random(17)
    words = (str(writer.path), "-t", topic, "-p", str(PARTITIONS), "--follow")
    for number in range(ROUNDS):
        running = Ingest(broker, *words)
        wait_until_it_writes(broker, topic)
        if number == 0:
            # Of a file that is renamed before anything of it was committed nobody would know.
            wait_until(lambda: committed_lines(broker, topic), "the first lines are committed")
        time.sleep(rng.uniform(0, 0.3))
        if number % 2:
            getattr(writer, rotation)()
            time.sleep(rng.uniform(0, 0.4))
        assert running.end(signal.SIGKILL)[0] == -signal.SIGKILL
        if number % 3 == 0:  # while nobody reads
            getattr(writer, rotation)()
    running = Ingest(broker, *words)
    wait_until_it_writes(broker, topic)
    getattr(writer, rotation)()
    wait_until_it_writes(broker, topic)
    writer._ended.set()
    writer._thread.join()
    try:
        wait_until(lambda: len(committed_lines(broker, topic)) >= writer.count, "all lines come")
    finally:
        code, told = running.end(signal.SIGINT)
    assert (code, " written" in told) == (130, True), told
    found = Counter(committed_lines(broker, topic))
    assert found - expected(writer.count) == Counter()
    assert expected(writer.count) - found == Counter()


def test_a_killed_run_goes_on_in_the_middle_of_files(
    broker: BrokerProcess, new_topic: Topics, tmp_path: Path
) -> None:
    topic, rng = new_topic(), random.Random(5)
    directory = tmp_path / "logs"
    directory.mkdir()
    count = 0
    for number in range(8):
        lines = b"".join(b"line %d of the log\n" % each for each in range(count, count + 150_000))
        count += 150_000
        if number % 2:
            (directory / f"{number}.gz").write_bytes(gzip.compress(lines, 1))
        else:
            (directory / f"{number}.log").write_bytes(lines)
    words = (str(directory), "-t", topic, "-p", str(PARTITIONS), "--resume")
    kills = 0
    for _ in range(6):
        running = Ingest(broker, *words)
        try:
            running.process.wait(rng.uniform(0.7, 1.2))
        except subprocess.TimeoutExpired:
            kills += 1
            running.end(signal.SIGKILL)
    assert Ingest(broker, *words).end()[0] == 0
    assert kills
    assert Counter(committed_lines(broker, topic)) == expected(count)
    again = Ingest(broker, *words)
    assert again.process.communicate(timeout=60)[0].split("\t")[:3] == [topic, "0", "0"]


def test_of_two_commands_over_the_same_files_one_takes_over(
    broker: BrokerProcess, new_topic: Topics, writer: Writer
) -> None:
    topic = new_topic()
    words = (str(writer.path), "-t", topic, "-p", str(PARTITIONS), "--follow")
    first = Ingest(broker, *words)
    wait_until_it_writes(broker, topic)
    both = [first, Ingest(broker, *words)]
    wait_until(lambda: any(each.process.poll() is not None for each in both), "one ends")
    (ended,) = (each for each in both if each.process.poll() is not None)
    (going_on,) = (each for each in both if each is not ended)
    code, told = ended.end()
    assert (code, "another command has taken over" in told) == (1, True), told
    writer._ended.set()
    writer._thread.join()
    wait_until(lambda: len(committed_lines(broker, topic)) >= writer.count, "all lines come")
    assert going_on.end(signal.SIGTERM)[0] == 143
    assert Counter(committed_lines(broker, topic)) == expected(writer.count)
