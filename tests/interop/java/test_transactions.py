"""Java's transactional producer, and kafka-transactions, on brokers of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests import hanging_transaction as hanging
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, create, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def values(broker: BrokerProcess, topic: str, isolation: str) -> list[str]:
    """Return the records of the first partition up to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        found.append(message.value().decode())
    consumer.close()
    return found


def table(printed: str) -> list[dict[str, str]]:
    """Return the rows of what a tool prints below a header."""
    header, *rows = [line.split() for line in printed.strip().splitlines()]
    return [dict(zip(header, row, strict=False)) for row in rows]


def test_the_performance_tool(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    create(broker, topic)
    printed = tools.run(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100"),
        *("--throughput", "-1", "--transactional-id", topic, "--transaction-duration-ms", "50"),
        *("--bootstrap-server", broker.bootstrap),
    )
    assert "5000 records sent" in printed
    assert len(values(broker, topic, "read_committed")) == 5000
    (row,) = [
        each
        for each in table(tools.run("kafka-transactions", *server(broker), "list"))
        if each["TransactionalId"] == topic
    ]
    assert row["TransactionState"] == "CompleteCommit"


def test_a_hanging_transaction(tools: KafkaTools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, hanging.SETTINGS) as broker:
        create(broker, "t")
        hanging.leave_hanging(broker, "t")
        command = ("kafka-transactions", *server(broker))
        at_once = ("--broker-id", "1", "--max-transaction-timeout", "0")
        (row,) = table(tools.run(*command, "find-hanging", *at_once))
        assert (row["Topic"], row["Partition"]) == ("t", "0")
        assert row["StartOffset"] == str(hanging.START_OFFSET)
        where = ("--topic", "t", "--partition", "0", "--start-offset", row["StartOffset"])
        tools.run(*command, "abort", *where)
        assert table(tools.run(*command, "find-hanging", *at_once)) == []
        assert hanging.committed(broker.bootstrap, "t") == [hanging.BEFORE, hanging.AFTER]
        assert "Could not find any open transactions" in tools.refused(*command, "abort", *where)
