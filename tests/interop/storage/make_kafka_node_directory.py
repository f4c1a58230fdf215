"""Makes ``tests/data/kafka-4.3.0-node``: a whole data directory of a combined KRaft node.

Run it as ``python -m tests.interop.storage.make_kafka_node_directory``. It needs Kafka
(``KAFKA_HOME``) and confluent-kafka. What Kafka said of it is kept beside it in ``expected.json``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bench.peers.kafka import KafkaNode
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from tests.interop.kafka_cluster import small_kafka_node

TARGET = Path(__file__).parents[2] / "data" / "kafka-4.3.0-node"
PATIENCE_S = 60.0
TOPICS = {
    "orders": (3, {"retention.ms": "123456789", "max.message.bytes": "2000000"}),
    "table": (2, {"cleanup.policy": "compact", "segment.ms": "3600000"}),
    "gone": (1, {"retention.ms": "5"}),
    "empty": (4, {}),
}
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "log.index.size.max.bytes": "4096",
    "metadata.log.max.record.bytes.between.snapshots": "2500",
}


def write(bootstrap: str) -> None:
    """Do with Kafka what leaves something of everything."""
    address = {"bootstrap.servers": bootstrap}
    admin = AdminClient(address)
    wanted = [NewTopic(name, count, 1, config=c) for name, (count, c) in TOPICS.items()]
    for future in admin.create_topics(wanted).values():
        future.result(PATIENCE_S)
    producer = Producer(address)
    for number in range(30):
        producer.produce("orders", f"order {number}".encode(), partition=number % 3)
        producer.produce("table", f"{number}".encode(), key=f"{number % 4}".encode(), partition=0)
    producer.flush(PATIENCE_S)
    consumer = Consumer({**address, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(20, PATIENCE_S)) == 20
    consumer.commit(asynchronous=False)
    transactional = Producer({**address, "transactional.id": "mover"})
    transactional.init_transactions(PATIENCE_S)
    for number in range(2):
        transactional.begin_transaction()
        transactional.produce("orders", f"transaction {number}".encode(), partition=0)
        transactional.flush(PATIENCE_S)
        (transactional.abort_transaction if number else transactional.commit_transaction)(
            PATIENCE_S
        )
    consumer.close()
    for operation, value in ((AlterConfigOpType.SET, "777"), (AlterConfigOpType.DELETE, None)):
        name = "segment.jitter.ms" if value else "max.message.bytes"
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource("topic", "orders", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(PATIENCE_S)
    for future in admin.delete_topics(["gone"]).values():
        future.result(PATIENCE_S)


def description(bootstrap: str) -> dict[str, Any]:
    """Return what a broker says of its topics, settings, records and groups."""
    address = {"bootstrap.servers": bootstrap}
    admin = AdminClient(address)
    topics = {
        name: len(topic.partitions)
        for name, topic in admin.list_topics(timeout=PATIENCE_S).topics.items()
        if name not in ("__cluster_metadata",)
    }
    configs = {}
    for name in topics:
        (future,) = admin.describe_configs([ConfigResource("topic", name)]).values()
        own = future.result(PATIENCE_S).values()
        # Source 1: set for this topic.
        configs[name] = {entry.name: entry.value for entry in own if entry.source == 1}
    request = ConsumerGroupTopicPartitions("readers")
    offsets = admin.list_consumer_group_offsets([request])["readers"].result(PATIENCE_S)
    return {
        "topics": dict(sorted(topics.items())),
        "configs": dict(sorted(configs.items())),
        "offsets": {str(p.partition): p.offset for p in offsets.topic_partitions},
        "orders": sorted(read(bootstrap, "orders", 3)),
        "table": sorted(read(bootstrap, "table", 2)),
    }


def read(bootstrap: str, topic: str, count: int) -> list[list[Any]]:
    """Return the committed records of a topic as [partition, offset, value]."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "describer",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(count)])
    found, ends = [], 0
    while ends < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if message.error():
            ends += 1
        else:
            found.append([message.partition(), message.offset(), message.value().decode()])
    consumer.close()
    return found


def stopped_node(directory: Path) -> tuple[KafkaNode, dict[str, Any]]:
    """Return a node that has written and was stopped, and its description."""
    node = small_kafka_node(directory, SETTINGS)
    with node:
        write(node.bootstrap)
        expected = description(node.bootstrap)
    return node, expected


def main() -> None:
    """Make the directory anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    with tempfile.TemporaryDirectory() as name:
        node, expected = stopped_node(Path(name))
        shutil.copytree(node.log_dir, TARGET, ignore=shutil.ignore_patterns(".lock"))
    text = json.dumps(expected, indent=1) + "\n"
    (TARGET.parent / f"{TARGET.name}.json").write_text(text)


if __name__ == "__main__":
    main()
