"""kafka-consumer-groups over groups that the console consumer made."""

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


def consume(tools: KafkaTools, broker: BrokerProcess, topic: str, group: str, count: int) -> str:
    return tools.attempt(
        "kafka-console-consumer",
        *server(broker),
        *("--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", str(count), "--timeout-ms", "30000"),
    ).stdout


def offsets(described: str, topic: str) -> dict[int, tuple[str, str, str]]:
    """Return (current, end, lag) by partition out of ``--describe``."""
    rows = [line.split() for line in described.splitlines() if f" {topic} " in line]
    return {int(row[2]): (row[3], row[4], row[5]) for row in rows}


def test_kafka_consumer_groups(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, group = new_topic(), f"group-{new_topic()}"
    create(broker, topic)
    produce(broker, topic, *LINES)
    assert consume(tools, broker, topic, group, 4).splitlines() == list(LINES[:4])
    command = ("kafka-consumer-groups", *server(broker))
    one = (*command, "--group", group)

    assert group in tools.run(*command, "--list").split()
    listed = tools.run(*command, "--list", "--state", "Empty")
    assert any(line.split() == [group, "Empty"] for line in listed.splitlines())
    described = tools.attempt(*one, "--describe")
    assert offsets(described.stdout, topic) == {0: ("4", "10", "6")}
    state = tools.attempt(*one, "--describe", "--state").stdout
    assert "Empty" in state
    assert broker.bootstrap in state

    reset = (*one, "--reset-offsets", "--topic", topic)
    planned = tools.run(*reset, "--to-earliest", "--dry-run")
    assert planned.split()[-1] == "0"
    assert offsets(tools.attempt(*one, "--describe").stdout, topic)[0][0] == "4"
    for target, expected in (
        (("--shift-by", "-3"), "1"),
        (("--to-latest",), "10"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--to-offset", "7"), "7"),
    ):
        tools.run(*reset, *target, "--execute")
        assert offsets(tools.attempt(*one, "--describe").stdout, topic)[0][0] == expected
    assert consume(tools, broker, topic, group, 3).splitlines() == list(LINES[7:])

    tools.run(*one, "--delete-offsets", "--topic", topic)
    assert offsets(tools.attempt(*one, "--describe").stdout, topic) == {}
    tools.run(*reset, "--to-earliest", "--execute")
    assert "was successful" in tools.run(*one, "--delete")
    assert group not in tools.run(*command, "--list").split()
    assert "GroupIdNotFoundException" in tools.refused(*one, "--describe")


def test_kafka_groups(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, group = new_topic(), f"group-{new_topic()}"
    create(broker, topic)
    produce(broker, topic, *LINES)
    consume(tools, broker, topic, group, 1)
    rows = [
        line.split() for line in tools.run("kafka-groups", *server(broker), "--list").splitlines()
    ]
    assert [group, "Classic", "consumer"] in rows


def test_describe_shows_the_members_of_an_active_group(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic, group = new_topic(), f"group-{new_topic()}"
    create(broker, topic, 2)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "client.id": "reader"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.05)
    try:
        members = tools.run(
            "kafka-consumer-groups", *server(broker), "--group", group, "--describe", "--members"
        )
        [row] = [line.split() for line in members.splitlines() if line.startswith(group)]
        assert row[1].startswith("reader-")
        assert row[2:5] == ["/127.0.0.1", "reader", "2"]
        refused = tools.refused(
            "kafka-consumer-groups", *server(broker), "--group", group, "--delete"
        )
        assert "GroupNotEmptyException" in refused
    finally:
        consumer.close()
