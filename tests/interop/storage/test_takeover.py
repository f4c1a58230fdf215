"""One data directory is written by Apache Kafka, taken over by a broker of ours, and taken back.

Everything happens in the directory itself: it holds logs in every codec, of idempotent producers,
of transactions that were committed and aborted, a log that Kafka's cleaner has compacted into
segments with gaps, one whose start was moved, and Kafka's own metadata.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from bench.peers.kafka import KafkaNode
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools
from tests.interop.java.test_files import dump
from tests.interop.kafka_cluster import (
    JavaTool,
    KafkaUnavailableError,
    kafka_jars,
    small_kafka_node,
)
from tests.unit.storage.test_verify import FILES

from millstream.storage.directory import PartitionDirectory, parse_directory_name
from millstream.storage.verify.log_directory import verify_directory_files
from millstream.storage.verify.partition import VerifyOptions, verify_partition

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(400),
]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SEVERAL_SEGMENTS: Final = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "300",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "1000",
}
TOPICS: Final = {
    **{f"codec-{codec}": SEVERAL_SEGMENTS for codec in CODECS},
    "idempotent": SEVERAL_SEGMENTS,
    "transactions": SEVERAL_SEGMENTS,
    "trimmed": SEVERAL_SEGMENTS,
    "compacted": COMPACTED,
}
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.cleaner.backoff.ms": "200",
    "log.flush.start.offset.checkpoint.interval.ms": "300",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.dedupe.buffer.size": "2097152",
}
COMPLAINTS: Final = re.compile(
    r" ERROR |corrupt|Corrupt|Found invalid|rebuilding|Rebuilding|Deleting index|Could not|"
    r"truncat|Truncat|Exception"
)

Records = list[tuple[int, bytes | None, bytes | None]]
Served = dict[tuple[str, str], Records]
"""By topic and isolation level: (offset, key, value)."""


def produce(bootstrap: str, topic: str, count: int, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "5", **settings})
    for number in range(count):
        key = b"%d" % (number % 20)
        producer.produce(topic, b"%s %d " % (topic.encode(), number) * 30, key, partition=0)
        if number % 500 == 499:
            producer.flush(30)
    assert producer.flush(30) == 0


def write_everything(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1, config=dict(config)) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in CODECS:
        produce(bootstrap, f"codec-{codec}", 3000, **{"compression.type": codec})
    produce(bootstrap, "idempotent", 3000, **{"enable.idempotence": "true"})
    produce(bootstrap, "trimmed", 3000)
    for future in admin.delete_records([TopicPartition("trimmed", 0, 1234)]).values():
        future.result(30)
    transact(bootstrap)
    compact(bootstrap)


def transact(bootstrap: str) -> None:
    for name in ("first", "second"):
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producer.init_transactions(30)
        for number in range(6):
            producer.begin_transaction()
            for record in range(200):
                value = f"{name} {number} {record} " * 8
                producer.produce("transactions", value.encode(), partition=0)
            producer.flush(30)
            (producer.abort_transaction if number % 2 else producer.commit_transaction)(30)


def compact(bootstrap: str) -> None:
    """Write over the same keys until the cleaner has left gaps in a closed segment."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(60):
        value = None if number % 11 == 7 else b"%d" % number
        producer.produce("compacted", value, key=b"%d" % (number % 5), partition=0)
        producer.flush(30)
        time.sleep(0.05)
    deadline = time.monotonic() + 60
    while len(consume(bootstrap, "compacted", "read_committed")) > 20:
        assert time.monotonic() < deadline, "the cleaner did nothing"
        time.sleep(0.5)


def consume(bootstrap: str, topic: str, isolation: str) -> Records:
    """Return what a consumer gets from the log start to the end."""
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
    found: Records = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"nothing more comes from {topic}"
        if message.error():
            break
        found.append((message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def everything(bootstrap: str) -> Served:
    return {
        (topic, isolation): consume(bootstrap, topic, isolation)
        for topic in TOPICS
        for isolation in ("read_committed", "read_uncommitted")
    }


def problems(directory: Path) -> list[str]:
    """Return what `log verify --records` would print of a stopped broker's directory."""
    found = []
    reports = {}
    for path in sorted(directory.glob("*-*/")):
        parsed = parse_directory_name(path.name)
        if parsed is None or parsed[0].topic == "__cluster_metadata":
            continue
        place = PartitionDirectory(str(directory), path.name, parsed[0])
        reports[parsed[0]] = verify_partition(FILES, place, VerifyOptions(with_records=True))
        found += reports[parsed[0]].problems
    found += verify_directory_files(FILES, str(directory), reports, is_live=False)
    return list(map(str, found))


def check_files(tools: KafkaTools, directory: Path) -> None:
    """Let DumpLogSegments look at every file, and hold indexes against logs."""
    places = [path for path in directory.glob("*-*/") if "__cluster_metadata" not in path.name]
    files = sorted(file for place in places for file in place.iterdir())
    by_kind = {
        kind: [file for file in files if file.suffix == kind]
        for kind in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    }
    assert all(by_kind.values())
    dump(tools, by_kind[".log"], "--deep-iteration")
    # Without options each entry of an index is compared with the log.
    dump(tools, by_kind[".index"] + by_kind[".timeindex"])
    dump(tools, by_kind[".txnindex"] + by_kind[".snapshot"])


@pytest.fixture
def tools() -> KafkaTools:
    return KafkaTools(JavaTool(kafka_jars()))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    try:
        node = small_kafka_node(tmp_path / "node", SETTINGS)
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    yield node
    node.stop()


def stop(broker: KafkaNode | BrokerProcess, ending: str) -> None:
    if ending == "killed":
        broker.kill()
    else:
        broker.stop()


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_there_and_back(node: KafkaNode, tools: KafkaTools, ending: str) -> None:
    node.start()
    write_everything(node.bootstrap)
    by_kafka = everything(node.bootstrap)
    assert len(by_kafka["transactions", "read_uncommitted"]) == 2400
    assert len(by_kafka["transactions", "read_committed"]) == 1200
    assert by_kafka["trimmed", "read_committed"][0][0] == 1234
    time.sleep(1)  # until the log start of the trimmed topic is in its checkpoint
    stop(node, ending)
    metadata = (node.log_dir / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes()

    broker = BrokerProcess(node.directory, SETTINGS)
    broker.start()
    try:
        assert everything(broker.bootstrap) == by_kafka
        for topic in TOPICS:
            produce(broker.bootstrap, topic, 1200, **{"enable.idempotence": "true"})
        by_us = everything(broker.bootstrap)
        stop(broker, ending)
    finally:
        broker.kill()
    assert problems(node.log_dir) == []
    check_files(tools, node.log_dir)
    for (topic, isolation), records in by_us.items():
        if topic != "compacted":
            assert records[: len(records) - 1200] == by_kafka[topic, isolation]
    # What belongs to Kafka's controllers alone was left alone.
    assert (node.log_dir / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes() == metadata

    printed = node.output.stat().st_size
    node.start()
    taken_back = everything(node.bootstrap)
    for topic in TOPICS:
        produce(node.bootstrap, topic, 100)
    node.stop()
    said = node.output.read_text(errors="replace")[printed:]
    complaints = [line for line in said.splitlines() if COMPLAINTS.search(line)]
    assert complaints == []
    for (topic, isolation), records in taken_back.items():
        if topic == "compacted":
            # Its cleaner may have been at work in between: the newest of each key counts.
            assert newest(records) == newest(by_us[topic, isolation])
        else:
            assert records == by_us[topic, isolation]
    assert problems(node.log_dir) == []


def newest(records: Records) -> dict[bytes | None, bytes]:
    values = {key: value for _, key, value in records}
    return {key: value for key, value in values.items() if value is not None}
