"""A compacted log goes between Millstream and Apache Kafka, and each cleans it further."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.peers.kafka import KafkaNode
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.kafka_cluster import (
    JavaTool,
    KafkaUnavailableError,
    kafka_jars,
    small_kafka_node,
)
from tests.unit.storage.cleaning_support import clean_all, compacted, put
from tests.unit.storage.support import NOW_MS, append_marker, close, create_log

from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.records.compression import Codec
from millstream.storage.cleaner_checkpoint import read_cleaner_checkpoint
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import LocalFileSystem
from millstream.storage.log import Log
from millstream.storage.log_manager import LogManager

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow]

MAIN = "org.apache.kafka.tools.DumpLogSegments"
MIB = 1 << 20
TABLE = TopicPartition("table", 0)
CONFIG = TopicConfig({"cleanup.policy": "compact", "segment.bytes": str(MIB)})


@pytest.fixture(scope="module")
def tool() -> JavaTool:
    try:
        return JavaTool(kafka_jars())
    except KafkaUnavailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kernel", [False, True])
def test_dump_log_segments_accepts_what_cleaning_leaves(
    tmp_path: Path, tool: JavaTool, kernel: bool
) -> None:
    chance = random.Random(3)
    log = create_log(
        tmp_path,
        compacted(**{"internal.segment.bytes": "20000", "delete.retention.ms": "1000"}),
    )
    sequences = {1: 0, 2: 0}
    for n in range(600):
        pairs = [
            (b"key-%d" % chance.randrange(60), b"v" * 30 if chance.random() < 0.9 else None)
            for _ in range(chance.randrange(1, 6))
        ]
        producer = chance.choice([None, 1, 2])
        codec = chance.choice(list(Codec))
        times = [NOW_MS + n * 10 + k for k in range(len(pairs))]
        if producer is None:
            put(log, *pairs, codec=codec, timestamps=times)
            continue
        put(log, *pairs, codec=codec, timestamps=times, producer_id=producer, producer_epoch=0,
            base_sequence=sequences[producer], is_transactional=producer == 1)  # fmt: skip
        sequences[producer] += len(pairs)
        if producer == 1 and chance.random() < 0.5:
            append_marker(log, 1, commit=chance.random() < 0.5)
            log.offsets.update_high_watermark(log.log_end_offset)
    append_marker(log, 1, commit=True)
    log.offsets.update_high_watermark(log.log_end_offset)
    log.appender.roll(now_ms=NOW_MS)
    before = log.size
    for now_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 2000):
        clean_all(log, None, now_ms=now_ms, kernel=kernel)
    assert log.size < before / 3
    log.local.environment.removals.run_due(NOW_MS + 10**9)
    close(log)
    directory = tmp_path / "orders-0"
    for extension, options in (
        (".log", ["--deep-iteration"]),
        (".index", ["--index-sanity-check"]),
        (".timeindex", ["--index-sanity-check"]),
        (".index", ["--verify-index-only"]),
        (".index", []),
        (".timeindex", []),
        (".snapshot", []),
    ):
        files = ",".join(str(path) for path in sorted(directory.glob(f"*{extension}")))
        done = tool.run(MAIN, *options, "--files", files)
        output = done.stdout + done.stderr
        assert done.returncode == 0, output
        for complaint in (
            "Mismatches",
            "Exception",
            "corrupt",
            "Found timestamp mismatch",
            "isvalid: false",
        ):
            assert complaint not in output, output[-3000:]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    settings = {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.dedupe.buffer.size": str(4 * MIB),
        "log.segment.delete.delay.ms": "0",
    }
    try:
        node = small_kafka_node(tmp_path, settings)
        node.start()
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    yield node
    node.stop()


def write(node: KafkaNode, table: dict[bytes, int], first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 20})
    for n in range(first, first + count):
        key = b"key-%d" % (n * 7919 % 100)
        producer.produce("table", b"%d." % n + b"v" * 900, key, partition=0)
        table[key] = n
        if n % 500 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0


def read(node: KafkaNode) -> tuple[int, dict[bytes, int]]:
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition("table", 0, 0)])
    table: dict[bytes, int] = {}
    count = 0
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        key, value = message.key(), message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        table[key] = int(value.split(b".")[0])
        count += 1
    consumer.close()
    return count, table


def wait_for_kafka(node: KafkaNode, beyond: int) -> None:
    deadline = time.monotonic() + 60
    while _checkpoint(node.log_dir) <= beyond:
        assert time.monotonic() < deadline, "Apache Kafka has not cleaned the log"
        time.sleep(0.2)


def _checkpoint(directory: Path) -> int:
    return read_cleaner_checkpoint(LocalFileSystem(), str(directory)).get(TABLE, 0)


def open_table(node: KafkaNode) -> tuple[LogManager, Log]:
    manager = LogManager([str(node.log_dir)], LogEnvironment(), broker_id=1)
    manager.lock()
    now_ms = int(time.time() * 1000)
    manager.start(config_of=lambda partition, topic_id: CONFIG, now_ms=now_ms)
    log = manager.get(TABLE)
    assert log is not None
    log.offsets.update_high_watermark(log.log_end_offset)
    return manager, log


def test_each_cleans_what_the_other_has_cleaned(node: KafkaNode) -> None:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(MIB),
        "min.cleanable.dirty.ratio": "0.01",
    }
    for future in admin.create_topics([NewTopic("table", 1, 1, config=config)]).values():
        future.result(30)
    table: dict[bytes, int] = {}
    write(node, table, 0, 5000)
    wait_for_kafka(node, 0)
    assert read(node)[1] == table
    write(node, table, 5000, 3000)
    node.stop()

    # Ours: what Kafka has cleaned, and what it may not have got to yet, is read and cleaned on.
    manager, log = open_table(node)
    checkpoint = _checkpoint(node.log_dir)
    assert 0 < checkpoint < log.log_end_offset
    now_ms = int(time.time() * 1000)
    log.appender.roll(now_ms=now_ms)
    before = log.size
    assert clean_all(log, checkpoint, now_ms=now_ms, buffer_bytes=1 << 18) == 8000
    clean_all(log, 0, now_ms=now_ms, buffer_bytes=1 << 18)
    assert log.size < before / 5
    log.local.environment.removals.run_due(now_ms + 10**9)
    manager.cleaner_checkpoint_plan(manager.directories[0], {TABLE: 8000})()
    manager.close()

    # Kafka again: it serves what we left, takes up at our checkpoint, and cleans on.
    node.start()
    assert read(node) == (100, table)
    write(node, table, 8000, 3000)
    wait_for_kafka(node, 8000)
    count, found = read(node)
    assert found == table
    assert count < 3100
    node.stop()
    complaints = re.findall(
        r".*(?:ERROR|corrupt|Recovering unflushed).*", node.output.read_text(errors="replace")
    )
    assert not complaints
