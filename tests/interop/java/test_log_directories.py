"""kafka-reassign-partitions with ``log_dirs`` moves a replica to another disk, as with Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, create, produce, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

TOPIC = "moved"
LINES = [f"line {number}" for number in range(200)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Run a broker with two log directories."""
    process = BrokerProcess(tmp_path)
    process.data_directory = f"{tmp_path / 'a'},{tmp_path / 'b'}"  # type: ignore[assignment]
    with process:
        yield process


def where(tools: KafkaTools, broker: BrokerProcess) -> dict[str, str]:
    """Return the directory of each partition of the topic; one that is copied is left out."""
    printed = tools.run("kafka-log-dirs", *server(broker), "--describe", "--topic-list", TOPIC)
    [node] = json.loads(printed[printed.index("{") :])["brokers"]
    return {
        partition["partition"]: directory["logDir"]
        for directory in node["logDirs"]
        for partition in directory["partitions"]
        if not partition["isFuture"]
    }


def read_all(broker: BrokerProcess) -> list[str]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader"}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[str] = []
    while len(values) < len(LINES):
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        value = message.value()
        assert value is not None
        values.append(value.decode())
    consumer.close()
    return values


def test_a_replica_moves_to_the_directory_that_was_asked_for(
    tools: KafkaTools, broker: BrokerProcess, tmp_path: Path
) -> None:
    create(broker, TOPIC, 1)
    produce(broker, TOPIC, *LINES)
    name = f"{TOPIC}-0"
    before = where(tools, broker)[name]
    after = next(str(tmp_path / each) for each in "ab" if str(tmp_path / each) != before)
    move = {"topic": TOPIC, "partition": 0, "replicas": [1], "log_dirs": [after]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    command = (
        "kafka-reassign-partitions",
        *server(broker),
        "--reassignment-json-file",
        str(plan),
    )
    printed = tools.run(*command, "--execute")
    assert f"Successfully started partition reassignment for {name}" in printed
    assert f"moving log directory to {after} for replica {name} with broker 1" in printed
    for _ in range(10):
        printed = tools.run(*command, "--verify", "--preserve-throttles")
        if "still in progress" not in printed:
            break
    assert f"Reassignment of replica {name}-1 completed successfully" in printed
    assert where(tools, broker)[name] == after
    assert read_all(broker) == LINES

    move["log_dirs"] = ["/no/such/directory"]
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    assert "LogDirNotFoundException" in tools.refused(*command, "--execute", "--timeout", "3000")
    assert where(tools, broker)[name] == after
