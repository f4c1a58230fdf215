"""Kafka reads the files of a broker of ours, and a broker of ours serves Kafka's files."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.differential.batches import describe_batches
from tests.interop.differential.session import Session
from tests.interop.java.conftest import KafkaTools
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
}
TOPIC_SETTINGS: Final = {"segment.bytes": "1048576", "index.interval.bytes": "1000"}
RECORDS: Final = 3000

Served = dict[int, list[dict[str, object]]]
"""Batches by partition."""


def fill(bootstrap: str, topic: str) -> None:
    """Two partitions with several segments: every codec, idempotent and plain producers."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, 2, 1, config=dict(TOPIC_SETTINGS))
    admin.create_topics([wanted])[topic].result(30)
    chance = random.Random(3)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": codec != "gzip",
                "batch.num.messages": 100,
            }
        )
        for number in range(RECORDS):
            value = f"{codec} {number} ".encode() + chance.randbytes(number % 600)
            headers = {"h": b"1"} if number % 7 == 0 else None
            key = str(number).encode()
            producer.produce(topic, value, key, partition=number % 2, headers=headers)
            producer.poll(0)
        assert producer.flush(30) == 0


def read_group(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    """Read ``count`` records as a member of a group and commit."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    messages = consumer.consume(count, 30)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [message.value() for message in messages]


def batches(bootstrap: str, topic: str, partition: int) -> list[dict[str, object]]:
    """Return every batch of a partition as it comes over the wire."""
    session = Session(bootstrap)
    found: list[dict[str, object]] = []
    offset = 0
    while True:
        part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        topics = [{"topic": topic, "partitions": [part]}]
        fields = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "session_epoch": -1}
        answer = session.quiet("Fetch", 11, topics=topics, **fields)
        data = answer["responses"][0]["partitions"][0]
        assert data["error_code"] == 0
        got = [each for each in describe_batches(data["records"]) if "magic" in each]
        if not got:
            session.close()
            return found
        found += got
        last = got[-1]
        offset = int(str(last["base_offset"])) + int(str(last["last_offset_delta"])) + 1


def dump(tools: KafkaTools, files: list[Path], *options: str) -> str:
    """Let DumpLogSegments read files; any complaint of its fails the test."""
    names = ",".join(map(str, files))
    done = tools.attempt("kafka-dump-log", "--files", names, *options)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    for complaint in ("Mismatch", "Exception", "corrupt", "isvalid: false", "Found timestamp"):
        assert complaint not in output, output[output.index(complaint) - 500 :][:3000]
    return done.stdout


def test_dump_log_segments_accepts_every_file(tools: KafkaTools, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        fill(broker.bootstrap, "files")
        read_group(broker.bootstrap, "files", "readers", RECORDS)
    directories = sorted(broker.data_directory.glob("*-*/"))
    files = [each for directory in directories for each in sorted(directory.iterdir())]
    kinds = {suffix: [f for f in files if f.suffix == suffix] for suffix in _SUFFIXES}
    assert len(kinds[".log"]) > len(directories), "the topic has several segments"
    assert kinds[".snapshot"], "a clean stop leaves the producers' state"
    readable = [each for group in kinds.values() for each in group]

    assert "CreateTime" in dump(tools, readable, "--deep-iteration")
    dump(tools, readable, "--index-sanity-check")
    dump(tools, kinds[".index"] + kinds[".timeindex"], "--verify-index-only")
    offsets = [each for each in kinds[".log"] if each.parent.name.startswith("__consumer_offsets")]
    decoded = dump(tools, offsets, "--offsets-decoder", "--deep-iteration")
    assert '"group":"readers"' in decoded
    assert '"protocolType":"consumer"' in decoded


_SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@pytest.fixture(scope="module")
def kafka_directory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Served]:
    """A data directory that Kafka wrote, and what Kafka served from it."""
    try:
        node = small_kafka_node(tmp_path_factory.mktemp("kafka"), SETTINGS)
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    with node:
        fill(node.bootstrap, "moved")
        transact(node.bootstrap, "moved")
        served = {partition: batches(node.bootstrap, "moved", partition) for partition in (0, 1)}
    return node.log_dir, served


def transact(bootstrap: str, topic: str) -> None:
    """Append a committed and an aborted transaction."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover"})
    producer.init_transactions(30)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for number in range(10):
            producer.produce(topic, f"{finish.__name__} {number}", partition=0)
        producer.flush(30)
        finish(30)


@pytest.mark.parametrize("indexes", ["kept", "deleted"])
def test_a_directory_that_kafka_wrote_is_served(
    tools: KafkaTools, kafka_directory: tuple[Path, Served], tmp_path: Path, indexes: str
) -> None:
    written, served = kafka_directory
    broker = BrokerProcess(tmp_path, SETTINGS)
    foreign = shutil.ignore_patterns("__cluster_metadata*", "bootstrap.checkpoint", ".lock")
    shutil.copytree(written, broker.data_directory, ignore=foreign)
    if indexes == "deleted":
        for each in broker.data_directory.glob("*/*index"):
            each.unlink()
    with broker:
        for partition, expected in served.items():
            assert batches(broker.bootstrap, "moved", partition) == expected
        values = read_group(
            broker.bootstrap, "moved", f"mover-{indexes}", len(CODECS) * RECORDS + 10
        )
        assert len(values) == len(CODECS) * RECORDS + 10
        assert b"commit_transaction 3" in values
        assert not any(value.startswith(b"abort") for value in values)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce("moved", "after", partition=0)
        assert producer.flush(30) == 0
        assert len(batches(broker.bootstrap, "moved", 0)) == len(served[0]) + 1
    logs = [
        each
        for each in broker.data_directory.glob("moved-*/*")
        if each.suffix in (".log", ".index", ".timeindex")
    ]
    dump(tools, logs, "--deep-iteration")
