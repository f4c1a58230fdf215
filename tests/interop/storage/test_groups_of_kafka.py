"""Groups and offsets that Apache Kafka wrote are there when Millstream serves its directory."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}


def consume(bootstrap: str, group_id: str, count: int, **settings: str) -> None:
    """Read ``count`` records as a member of a group, and commit them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    consumer.subscribe(["t"])
    got = consumer.consume(count, PATIENCE_S)
    assert len(got) == count
    consumer.commit(asynchronous=False)
    consumer.close()


def commit_in_transaction(bootstrap: str, offset: int, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"tx-{commit}"})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "transactional"})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        [TopicPartition("t", 0, offset)], consumer.consumer_group_metadata(), PATIENCE_S
    )
    if commit:
        producer.commit_transaction(PATIENCE_S)
    else:
        producer.abort_transaction(PATIENCE_S)
    consumer.close()


def offsets(bootstrap: str) -> dict[str, dict[int, int]]:
    """Return what every group committed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = {}
    for group in admin.list_consumer_groups().result(PATIENCE_S).valid:
        request = ConsumerGroupTopicPartitions(group.group_id)
        reply = admin.list_consumer_group_offsets([request], require_stable=True)
        partitions = reply[group.group_id].result(PATIENCE_S).topic_partitions
        found[group.group_id] = {part.partition: part.offset for part in partitions}
    return found


def test_offsets_that_kafka_wrote(tmp_path: Path) -> None:
    try:
        node = small_kafka_node(tmp_path / "kafka", SETTINGS)
    except KafkaUnavailableError as missing:
        pytest.skip(str(missing))
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(100):
            producer.produce("t", str(number).encode(), partition=number % 2)
        producer.flush(PATIENCE_S)
        consume(node.bootstrap, "classic", 60)
        consume(node.bootstrap, "consumer", 40, **{"group.protocol": "consumer"})
        commit_in_transaction(node.bootstrap, 7, commit=True)
        commit_in_transaction(node.bootstrap, 9, commit=False)
        expected = offsets(node.bootstrap)
    assert set(expected) == {"classic", "consumer", "transactional"}
    assert expected["transactional"] == {0: 7}
    broker = BrokerProcess(tmp_path / "millstream", SETTINGS)
    shutil.copytree(
        node.log_dir,
        broker.data_directory,
        ignore=shutil.ignore_patterns("__cluster_metadata*", "bootstrap.checkpoint", ".lock"),
    )
    with broker:
        assert offsets(broker.bootstrap) == expected
        consume(broker.bootstrap, "classic", 40)
        assert sum(offsets(broker.bootstrap)["classic"].values()) == 100
