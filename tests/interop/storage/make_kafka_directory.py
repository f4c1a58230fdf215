"""Makes ``tests/data/kafka-4.3.0``: a small data directory, written by Apache Kafka.

Run it as ``python -m tests.interop.storage.make_kafka_directory``. It needs Kafka (``KAFKA_HOME``)
and confluent-kafka. What consumers got from Kafka is kept beside it in ``expected.json``: per topic
and isolation level the records as [offset, value].
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

from bench.peers.kafka import KafkaNode
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.kafka_cluster import small_kafka_node

TARGET = Path(__file__).parents[2] / "data" / "kafka-4.3.0"
TOPICS = {
    "codecs": {"index.interval.bytes": "300"},
    "moves": {},
    "trimmed": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "200",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "1000",
    },
}
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


def consume(bootstrap: str, topic: str, isolation: str) -> list[tuple[int, str | None]]:
    """Return what a consumer gets, from the log start to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, low)])
    found = []
    while (message := consumer.poll(30)) is not None and not message.error():
        value = message.value()
        found.append((message.offset(), None if value is None else value.decode()))
    consumer.close()
    return found


def _write(node: KafkaNode) -> None:
    bootstrap = {"bootstrap.servers": node.bootstrap}
    admin = AdminClient(bootstrap)
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {**bootstrap, "compression.type": codec, "enable.idempotence": codec != "gzip"}
        )
        for n in range(12):
            producer.produce("codecs", f"{codec} {n} ".encode() * 8, partition=0)
            if n % 4 == 3:
                producer.flush(30)
    producer = Producer({**bootstrap, "transactional.id": "mover"})
    producer.init_transactions(30)
    for n in range(4):
        producer.begin_transaction()
        for k in range(3):
            producer.produce("moves", f"{n}-{k}".encode(), partition=0)
        producer.flush(30)
        (producer.abort_transaction if n % 2 else producer.commit_transaction)(30)
    producer = Producer(bootstrap)
    for n in range(10):
        producer.produce("trimmed", f"{n}".encode(), partition=0)
        producer.flush(30)
    for future in admin.delete_records([TopicPartition("trimmed", 0, 4)]).values():
        future.result(30)
    for n in range(12):
        value = None if n == 7 else f"{n}".encode()
        producer.produce("compacted", value, key=f"{n % 3}".encode(), partition=0)
        producer.flush(30)
        time.sleep(0.3)
    time.sleep(5)


def main() -> None:
    """Make the directory anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        node = small_kafka_node(Path(name), SETTINGS)
        with node:
            _write(node)
            expected = {
                f"{topic} {isolation}": consume(node.bootstrap, topic, isolation)
                for topic in TOPICS
                for isolation in ("read_committed", "read_uncommitted")
            }
        for path in node.log_dir.iterdir():
            if path.is_file() and path.name not in (".lock", "bootstrap.checkpoint"):
                shutil.copy(path, TARGET / path.name)
        for topic in TOPICS:
            shutil.copytree(node.log_dir / f"{topic}-0", TARGET / f"{topic}-0")
    (TARGET / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
