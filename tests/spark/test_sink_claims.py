"""An executor lives on after its driver; another attempt writes the same task of the same batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.broker_process import BrokerProcess

from millstream.client.cluster import Cluster
from millstream.client.offsets import LATEST, end_offsets
from millstream.spark.sink import Written, write_once
from millstream.spark.sink_claims import Claim, SupersededError
from millstream.spark.sink_journal import log_ends
from millstream.spark.sink_options import SinkOptions

ROWS = 30
EACH = 20
SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary())])

ATTEMPT = """
import sys, time
from pathlib import Path
from tests.spark.test_sink_claims import attempt
slow = float(sys.argv[4])
def before(number):
    print(number, flush=True)
    time.sleep(slow)
attempt(sys.argv[1], sys.argv[2], Path(sys.argv[3]), before, int(sys.argv[5]))
"""


def rows(before: Callable[[int], None] = lambda number: None) -> Iterator[pa.RecordBatch]:
    for number in range(ROWS):
        before(number)
        values = [b"%d" % (number * EACH + each) for each in range(EACH)]
        yield pa.RecordBatch.from_arrays([pa.array(values), pa.array(values)], schema=SCHEMA)


def attempt(
    bootstrap: str,
    topic: str,
    directory: Path,
    before: Callable[[int], None] = lambda number: None,
    patience_ms: int = 60_000,
) -> Written:
    options = SinkOptions(
        producer={
            "bootstrap.servers": bootstrap,
            "delivery.timeout.ms": str(patience_ms),
            "request.timeout.ms": str(patience_ms // 2),
        },
        topic=topic,
        state_directory=directory,
    )
    return write_once(rows(before), options, query="q", batch=3, task=0)


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    with Cluster.at(bootstrap) as cluster:
        places = [each.topic_partition for each in cluster.topic(topic).partitions]
        ends = end_offsets(cluster, places, which=LATEST)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "claims"})
    consumer.assign([TopicPartition(topic, place.partition, 0) for place in places])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < sum(ends.values()) and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(1000, 0.5)]
    consumer.close()
    return sorted(found, key=int)


EVERYTHING = [b"%d" % number for number in range(ROWS * EACH)]


@pytest.fixture
def zombie(
    broker: BrokerProcess, topic: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[subprocess.Popen[str]]:
    """A task that is in the middle of its rows; the parameter is its patience."""
    words = [broker.bootstrap, topic, str(tmp_path), "0.2", str(getattr(request, "param", 60_000))]
    process = subprocess.Popen(
        [sys.executable, "-c", ATTEMPT, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    while process.stdout.readline().strip() != "4":
        assert process.poll() is None
    yield process
    process.kill()
    process.communicate()


def test_an_executor_that_lives_on_is_stopped(
    broker: BrokerProcess, topic: str, tmp_path: Path, zombie: subprocess.Popen[str]
) -> None:
    written = attempt(broker.bootstrap, topic, tmp_path)
    _, errors = zombie.communicate(timeout=60)
    assert "SupersededError: attempt 0 at task 0 of micro-batch 3 is over" in errors
    assert written.replayed > 0
    assert written.rows + written.replayed == len(EVERYTHING)
    assert values_of(broker.bootstrap, topic) == EVERYTHING


def test_an_executor_that_was_frozen_meanwhile(
    broker: BrokerProcess, topic: str, tmp_path: Path, zombie: subprocess.Popen[str]
) -> None:
    """The other attempt waits for it; when it wakes up it finds that it is superseded."""
    zombie.send_signal(signal.SIGSTOP)
    waking = threading.Timer(2, zombie.send_signal, [signal.SIGCONT])
    waking.start()
    written = attempt(broker.bootstrap, topic, tmp_path)
    assert waking.finished.is_set()
    assert zombie.wait(60) != 0
    assert written.rows + written.replayed == len(EVERYTHING)
    assert values_of(broker.bootstrap, topic) == EVERYTHING


@pytest.mark.parametrize("zombie", [8000], indirect=True)
def test_a_frozen_executor_wakes_up_when_all_is_done(
    broker: BrokerProcess, topic: str, tmp_path: Path, zombie: subprocess.Popen[str]
) -> None:
    """Nobody waits for ever: after the patience it has lost, and finds that out. What it had handed
    over before it froze has expired by then, because both have the same patience.
    """
    zombie.send_signal(signal.SIGSTOP)
    attempt(broker.bootstrap, topic, tmp_path, patience_ms=8000)
    zombie.send_signal(signal.SIGCONT)
    zombie.communicate(timeout=60)
    assert zombie.returncode != 0
    assert values_of(broker.bootstrap, topic) == EVERYTHING


def test_an_executor_that_is_dead_is_not_waited_for(
    broker: BrokerProcess, topic: str, tmp_path: Path, zombie: subprocess.Popen[str]
) -> None:
    zombie.kill()
    zombie.wait()
    waited: list[float] = []
    claim = Claim.take(tmp_path / "3", 0)
    claim.wait_for_others(1000.0, sleep=waited.append)
    claim.release()
    assert not waited
    attempt(broker.bootstrap, topic, tmp_path)
    assert values_of(broker.bootstrap, topic) == EVERYTHING


def test_claims(tmp_path: Path) -> None:
    first = Claim.take(tmp_path, 7)
    first.check()
    second = Claim.take(tmp_path, 7)
    with pytest.raises(SupersededError):
        first.check()
    second.check()
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 3:
            first.release()

    second.wait_for_others(1000.0, sleep=sleep)
    assert len(rounds) == 3
    third = Claim.take(tmp_path, 7)
    with pytest.raises(SupersededError):
        second.check()
    other = Claim.take(tmp_path, 8)
    other.check()
    third.release()
    for path in tmp_path.iterdir():
        path.unlink()
    with pytest.raises(SupersededError):
        other.check()  # the micro-batch is done and forgotten
    other.release()


def test_log_ends(broker: BrokerProcess, topic: str, values: Callable[..., None]) -> None:
    values(topic, 1, "a", "b")
    with Cluster.at(broker.bootstrap) as cluster:
        places = [each.topic_partition for each in cluster.topic(topic).partitions]
        assert [log_ends(cluster, places)[place] for place in places] == [0, 2]
