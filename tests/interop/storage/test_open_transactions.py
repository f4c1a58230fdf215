"""A directory of Apache Kafka with an open transaction goes on here, and one of ours there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node

from millstream.client import Admin
from millstream.client.core.admin.producers import TransactionDescription

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

PATIENCE_S = 60.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
KEPT_BY_KAFKA = ("__cluster_metadata*", "bootstrap.checkpoint", ".lock")


def begin(bootstrap: str, transactional_id: str, value: str) -> Producer:
    """Write a record in a transaction that stays open."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("t", value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return producer


def described(bootstrap: str, transactional_id: str) -> TransactionDescription:
    """Return what a broker says of a transaction, but for where it is coordinated: there."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_transactions([transactional_id]).get_all()[transactional_id]
    assert found.coordinator == bootstrap
    return replace(found, coordinator="")


def committed(bootstrap: str) -> list[str]:
    """Return what a read_committed reader gets up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while (message := consumer.poll(PATIENCE_S)) is not None and not message.error():
        found.append(message.value().decode())
    consumer.close()
    return found


def test_from_kafka_to_us_and_back(tmp_path: Path) -> None:
    try:
        node = small_kafka_node(tmp_path / "kafka", SETTINGS)
    except KafkaUnavailableError as missing:
        pytest.skip(str(missing))
    held = []
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(PATIENCE_S)
        begin(node.bootstrap, "ended", "of kafka").commit_transaction(PATIENCE_S)
        held.append(begin(node.bootstrap, "open", "open at kafka"))
        of_kafka = described(node.bootstrap, "open")
    assert of_kafka.state == "Ongoing"

    broker = BrokerProcess(tmp_path / "millstream", SETTINGS)
    shutil.copytree(
        node.log_dir, broker.data_directory, ignore=shutil.ignore_patterns(*KEPT_BY_KAFKA)
    )
    with broker:
        assert described(broker.bootstrap, "open") == of_kafka
        assert described(broker.bootstrap, "ended").state == "CompleteCommit"
        assert committed(broker.bootstrap) == ["of kafka"]
        successor = begin(broker.bootstrap, "open", "of us")
        successor.commit_transaction(PATIENCE_S)
        assert committed(broker.bootstrap) == ["of kafka", "of us"]
        held.append(begin(broker.bootstrap, "ours", "open with us"))
        of_us = described(broker.bootstrap, "ours")
        # The stop comes while the record of its completion waits for company.
        begin(broker.bootstrap, "last", "ended last").commit_transaction(PATIENCE_S)
    assert of_us.state == "Ongoing"

    for log in broker.data_directory.glob("*-[0-9]*"):
        shutil.rmtree(node.log_dir / log.name, ignore_errors=True)
        shutil.copytree(log, node.log_dir / log.name)
    with node:
        assert described(node.bootstrap, "ours") == of_us
        assert described(node.bootstrap, "last").state == "CompleteCommit"
        assert committed(node.bootstrap) == ["of kafka", "of us"]
        begin(node.bootstrap, "ours", "again").commit_transaction(PATIENCE_S)
        assert committed(node.bootstrap) == ["of kafka", "of us", "ended last", "again"]
        assert described(node.bootstrap, "open").state == "CompleteCommit"
