"""A data directory moves from Apache Kafka to Millstream's storage and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.kafka import KafkaNode
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node
from tests.unit.storage.support import NOW_MS, append, append_marker, read_values

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.java]

CONFIG = TopicConfig()
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    settings = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.min.isr": "1",
        "log.index.interval.bytes": "512",
        "log.roll.ms": "1000000000",
    }
    try:
        node = small_kafka_node(tmp_path, settings)
        node.start()
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    yield node
    node.stop()


def produce(node: KafkaNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    topics = [NewTopic("orders", 1, 1), NewTopic("moves", 1, 1)]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "compression.type": codec,
                "enable.idempotence": codec != "gzip",
                "linger.ms": 50,
            }
        )
        for n in range(100):
            producer.produce("orders", f"{codec}-{n}".encode() * 3, partition=0)
        producer.flush(30)
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": "mover"})
    producer.init_transactions(30)
    for n in range(6):
        producer.begin_transaction()
        for k in range(5):
            producer.produce("moves", b"%d-%d" % (n, k), partition=0)
        producer.flush(30)
        if n % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def consume(node: KafkaNode, topic: str, *, committed: bool) -> list[tuple[int, bytes]]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None, "the broker has nothing to say"
        if message.error():
            break
        found.append((message.offset(), message.value()))
    consumer.close()
    return found


def open_logs(node: KafkaNode) -> LogManager:
    manager = LogManager([str(node.log_dir)], LogEnvironment(), broker_id=1)
    manager.lock()
    manager.start(config_of=lambda partition, topic_id: CONFIG, now_ms=NOW_MS)
    return manager


def log_of(manager: LogManager, topic: str) -> Log:
    log = manager.get(TopicPartition(topic, 0))
    assert log is not None
    log.offsets.update_high_watermark(log.log_end_offset)
    return log


def index_files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for topic in ("orders", "moves")
        for path in sorted(directory.glob(f"{topic}-0/*"))
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex")
    }


@pytest.mark.parametrize("clean", [True, False])
def test_from_kafka_to_us_and_back(node: KafkaNode, clean: bool) -> None:
    produce(node)
    orders = consume(node, "orders", committed=False)
    moves = consume(node, "moves", committed=False)
    committed = consume(node, "moves", committed=True)
    assert len(orders) == 500
    assert (len(moves), len(committed)) == (30, 15)
    if clean:
        node.stop()
    else:
        node.kill()

    manager = open_logs(node)
    assert manager.had_clean_shutdown is clean
    assert manager.cluster_id is not None
    log = log_of(manager, "orders")
    assert read_values(log) == orders
    assert log.topic_id is not None
    assert len(log.producers.active()) == 4
    assert [append(log, b"ours", epoch=log.latest_epoch).base_offset for _ in range(50)] == list(
        range(500, 550)
    )
    log = log_of(manager, "moves")
    assert read_values(log) == moves
    read = log.reader.read(
        0, max_bytes=1 << 20, upper_bound_offset=log.last_stable_offset, min_one_batch=True
    )
    assert len(log.reader.aborted_transactions(read)) == 3
    (producer,) = log.producers.active()
    for number, commit in ((0, True), (1, False)):
        append(
            log, b"ours-%d" % number, epoch=log.latest_epoch, producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch + 1 + number, base_sequence=0,
            is_transactional=True,
        )  # fmt: skip
        append_marker(
            log, producer.producer_id, commit=commit,
            producer_epoch=producer.producer_epoch + 1 + number,
            coordinator_epoch=producer.coordinator_epoch,
        )  # fmt: skip
    ours = log.log_end_offset
    manager.close()
    before = index_files(node.log_dir)

    node.start()
    assert consume(node, "orders", committed=False) == [
        *orders,
        *((n, b"ours") for n in range(500, 550)),
    ]
    assert consume(node, "moves", committed=True) == [*committed, (ours - 4, b"ours-0")]
    assert len(consume(node, "moves", committed=False)) == 32
    node.stop()
    assert index_files(node.log_dir) == before
