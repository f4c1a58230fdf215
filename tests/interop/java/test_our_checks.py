"""`millstream check history` and `millstream doctor` against Apache Kafka."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.kafka_cluster import KafkaNode, small_kafka_node
from tests.waiting import wait_until

from millstream.cli.main import main
from millstream.client import Admin, Consumer, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    with small_kafka_node(tmp_path_factory.mktemp("kafka"), SETTINGS) as node:
        yield node


class Killed:
    """A node that a shell command kills: it asks by one file and waits for another."""

    def __init__(self, node: KafkaNode, directory: Path) -> None:
        self.node = node
        self.times = 0
        self._asked, self._done = directory / "asked", directory / "done"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def command(self) -> str:
        asked, done = shlex.quote(str(self._asked)), shlex.quote(str(self._done))
        return f"touch {asked}; while ! test -e {done}; do sleep 0.05; done; rm {done}"

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            if self._asked.exists():
                self._asked.unlink()
                self.node.kill()
                self.node.start()
                self.times += 1
                self._done.touch()

    def __enter__(self) -> Killed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(120)


def checked(node: KafkaNode, tmp_path: Path, fault: str, *words: str) -> dict[str, Any]:
    file = tmp_path / "report.json"
    code = main(
        [
            *("check", "history", "-b", node.bootstrap, "--report", str(file), "--seconds", "8"),
            *("--rate", "60", "--fault-every", "2s", "--fault", fault, *words),
        ]
    )
    report: dict[str, Any] = json.loads(file.read_text())
    assert (code, report["examples"]) == (0, {})
    assert report["acknowledged"] > 0
    assert report["read"] >= report["acknowledged"]
    return report


@pytest.mark.parametrize("words", [(), ("--transactions",)], ids=["idempotent", "transactional"])
def test_a_pause_of_kafka_changes_nothing(
    node: KafkaNode, tmp_path: Path, words: tuple[str, ...]
) -> None:
    pause = f"kill -STOP {node.pid}; sleep 1; kill -CONT {node.pid}"
    report = checked(node, tmp_path, pause, *words)
    assert len(report["faults"]) >= 1
    assert bool(report["transactions_committed"]) is bool(words)


@pytest.mark.long
@pytest.mark.parametrize("words", [(), ("--transactions",)], ids=["idempotent", "transactional"])
def test_kafka_that_is_killed_loses_nothing(
    node: KafkaNode, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with Killed(node, tmp_path) as killed:
        checked(node, tmp_path, killed.command, *words)
    assert killed.times >= 1


def found(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> list[dict[str, Any]]:
    capfd.readouterr()
    assert main(["doctor", *words, "--json"]) == code
    out, err = capfd.readouterr()
    assert "Traceback" not in err
    rows: list[dict[str, Any]] = json.loads(out)
    return rows


def test_the_doctor_connects_to_kafka(node: KafkaNode, capfd: pytest.CaptureFixture[str]) -> None:
    steps = found(capfd, "connect", "-b", node.bootstrap)
    assert {each["outcome"] for each in steps} == {"ok"}
    assert {"name", "port", "versions", "metadata"} <= {each["step"] for each in steps}


def test_what_holds_readers_of_kafka_is_named(
    node: KafkaNode, capfd: pytest.CaptureFixture[str]
) -> None:
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topics([NewTopic("held", 1, 1)]).get_all()
    with Producer(bootstrap_servers=node.bootstrap, transactional_id="holds") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("held", b"one")
        producer.flush()
        told = found(capfd, "transactions", "held", "-b", node.bootstrap)
        assert any("holds" in each["finding"] for each in told), told
        producer.abort_transaction()
    wait_until(lambda: not found(capfd, "transactions", "held", "-b", node.bootstrap), "the end")


def test_a_group_of_kafka_is_looked_at(node: KafkaNode, capfd: pytest.CaptureFixture[str]) -> None:
    place = TopicPartition("lagging", 0)
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topics([NewTopic(place.topic, 1, 1)]).get_all()
    with Producer(bootstrap_servers=node.bootstrap) as producer:
        for _ in range(50):
            producer.send(place.topic, b"value")
    with Consumer[bytes, bytes](
        bootstrap_servers=node.bootstrap, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([place.topic])
        wait_until(lambda: bool(consumer.poll(0.5)), "records")
        consumer.commit()
    told = found(capfd, "group", "g", "--watch", "0s", "-b", node.bootstrap)
    assert any("no member" in each["finding"] for each in told), told


def test_settings_disks_and_everything_else_of_kafka(
    node: KafkaNode, capfd: pytest.CaptureFixture[str]
) -> None:
    for words in (["settings"], ["disk"], ["all"], ["cluster"]):
        told = found(capfd, *words, "-b", node.bootstrap)
        untold = [each for each in told if "could not be found out" in str(each)]
        assert not untold, (words, untold)
