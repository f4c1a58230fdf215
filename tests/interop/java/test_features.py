"""kafka-features on a broker of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, create, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]


def levels(tools: KafkaTools, broker: BrokerProcess) -> dict[str, str]:
    """Return the level in force of each feature, as the tool prints it."""
    printed = tools.run("kafka-features", *server(broker), "describe")
    rows = [dict(re.findall(r"(\w+): (\S+)", line)) for line in printed.splitlines()]
    return {row["Feature"]: row["FinalizedVersionLevel"] for row in rows}


def transact(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"value")
    producer.commit_transaction(30)


def test_levels_go_down_and_up(tools: KafkaTools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        create(broker, "t")
        at_first = levels(tools, broker)
        assert at_first["transaction.version"] == "2"
        assert at_first["group.version"] == "1"
        assert at_first["share.version"] == "1"
        command = ("kafka-features", *server(broker))
        lower = ("downgrade", "--feature", "transaction.version=1")
        tried = tools.run(*command, *lower, "--dry-run")
        assert "transaction.version can be downgraded to 1." in tried
        assert levels(tools, broker) == at_first
        assert "transaction.version was downgraded to 1." in tools.run(*command, *lower)
        assert levels(tools, broker) == at_first | {"transaction.version": "1"}
        transact(broker)
        broker.stop()
        broker.start()
        assert levels(tools, broker)["transaction.version"] == "1"
        raised = tools.run(*command, "upgrade", "--feature", "transaction.version=2")
        assert "transaction.version was upgraded to 2." in raised
        transact(broker)
        assert "share.version was disabled." in tools.run(
            *command, "disable", "--feature", "share.version"
        )
        assert levels(tools, broker) == at_first | {"share.version": "0"}
        for refused in (
            ("upgrade", "--feature", "transaction.version=9"),
            ("upgrade", "--feature", "no.such.feature=1"),
            ("upgrade", "--feature", "transaction.version=1"),
            ("downgrade", "--feature", "transaction.version=3"),
        ):
            assert "1 out of 1 operation(s) failed." in tools.refused(*command, *refused)
        assert levels(tools, broker) == at_first | {"share.version": "0"}
