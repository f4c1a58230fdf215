"""Java's consumer by the consumer protocol (KIP-848) on a broker of ours, and Kafka's tools on its
groups, their settings and their records.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, create, produce, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

LINES = tuple(f"line {number}" for number in range(10))


def test_a_consumer_of_java(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, group = new_topic(), f"group-{new_topic()}"
    create(broker, topic)
    produce(broker, topic, *LINES)
    arguments = (
        *server(broker),
        *("--group", group, "--command-property", "group.protocol=consumer"),
        *("--command-property", "auto.offset.reset=earliest", "--timeout-ms", "30000"),
    )
    read = tools.attempt(
        "kafka-console-consumer", *arguments, "--topic", topic, "--max-messages", "4"
    )
    assert read.stdout.splitlines() == list(LINES[:4]), read.stderr
    read = tools.attempt(
        "kafka-console-consumer", *arguments, "--include", f"{topic}|none", "--max-messages", "6"
    )
    assert read.stdout.splitlines() == list(LINES[4:]), read.stderr
    listed = tools.run("kafka-groups", *server(broker), "--list")
    assert [group, "Consumer", "consumer"] in [line.split() for line in listed.splitlines()]
    tools.run("kafka-consumer-groups", *server(broker), "--group", group, "--delete")


def test_tools_on_a_group_with_members(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, group = new_topic(), f"group-{new_topic()}"
    create(broker, topic, 2)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "group.protocol": "consumer",
        }
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    command = ("kafka-consumer-groups", *server(broker), "--group", group)
    try:
        members = tools.run(*command, "--describe", "--members", "--verbose")
        (row,) = [line.split() for line in members.splitlines() if line.startswith(group)]
        assert row[2:5] == ["/127.0.0.1", "reader", "2"]
        assert f"{topic}:0,1" in members
        state = tools.run(*command, "--describe", "--state", "--verbose")
        assert "Stable" in state
        assert "uniform" in state
        assert "GroupNotEmptyException" in tools.refused(*command, "--delete")
    finally:
        consumer.close()


def test_settings_of_a_group(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    group = f"group-{new_topic()}"
    command = (
        "kafka-configs",
        *server(broker),
        *("--entity-type", "groups", "--entity-name", group),
    )
    change = ("--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "Completed updating config" in tools.run(*command, *change)
    assert "consumer.session.timeout.ms=50000" in tools.run(*command, "--describe")
    refused = ("--alter", "--add-config", "consumer.session.timeout.ms=1")
    assert "consumer.session.timeout.ms must be greater" in tools.refused(*command, *refused)


def test_kafka_reads_the_records(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, group = new_topic(), f"group-{new_topic()}"
    create(broker, topic)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": "consumer"}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    consumer.close()
    files = sorted(broker.data_directory.glob("__consumer_offsets-*/*.log"))
    dumped = tools.run(
        "kafka-dump-log",
        *("--offsets-decoder", "--files", ",".join(str(f) for f in files if f.stat().st_size)),
    )
    ours = [line for line in dumped.splitlines() if f'"{group}"' in line]
    for key_type in (3, 5, 6, 7, 8):
        of_type = [line for line in ours if f'key: {{"type":"{key_type}"' in line]
        assert any('payload: {"version":"0"' in line for line in of_type), (key_type, ours)
    assert "assignmentEpochs" in dumped
