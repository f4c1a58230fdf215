"""Makes ``tests/data/kafka-2.8.2``: a small data directory in message formats 0 and 1.

Run it as ``python -m tests.interop.storage.make_old_format_directory LIBS``; ``LIBS`` holds the
jars of Apache Kafka 2.8.2 and of the ZooKeeper that it needs (Maven's
``dependency:copy-dependencies`` of ``org.apache.kafka:kafka_2.13:2.8.2`` and
``org.slf4j:slf4j-simple:1.7.30``). It is the last version but one that writes the old formats, told
to by the topic setting ``message.format.version``. What consumers got from it is kept beside it in
``expected.json``: per topic the records as [offset, timestamp type, timestamp, key, value].
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peers.kafka import free_port
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

TARGET = Path(__file__).parents[2] / "data" / "kafka-2.8.2"
SMALL = {"segment.bytes": "1500", "segment.index.bytes": "4096", "index.interval.bytes": "300"}
MAGIC_0 = {"message.format.version": "0.9.0", **SMALL}
MAGIC_1 = {"message.format.version": "0.10.2", **SMALL}
TOPICS = {
    "magic0": MAGIC_0,
    "magic1": MAGIC_1,
    "appended": {**MAGIC_1, "message.timestamp.type": "LogAppendTime"},
    "upgraded": MAGIC_1,
    "trimmed": MAGIC_1,
    "compacted": {
        **MAGIC_1,
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "200",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "1000",
    },
}
CODECS = ("none", "gzip", "snappy", "lz4")


@contextmanager
def process(libs: Path, directory: Path, main: str, argument: Path, port: int) -> Iterator[None]:
    """Run a main class until the block ends."""
    command = ["java", "-Xmx256M", "-cp", f"{libs}/*", main, str(argument)]
    with (directory / f"{main}.out").open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert running.poll() is None, f"{main} ended"
                assert time.monotonic() < deadline, f"{main} does not listen"
                time.sleep(0.1)
        yield
    finally:
        running.terminate()
        running.wait(60)


@contextmanager
def old_kafka(libs: Path, directory: Path) -> Iterator[str]:
    """Run ZooKeeper and one broker; yield its address."""
    zookeeper_port, port = free_port(), free_port()
    zookeeper = directory / "zoo.cfg"
    zookeeper.write_text(
        f"dataDir={directory}/zookeeper\nclientPort={zookeeper_port}\n"
        "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    properties = directory / "server.properties"
    properties.write_text(
        f"broker.id=1\nlog.dirs={directory}/data\nlisteners=PLAINTEXT://127.0.0.1:{port}\n"
        f"zookeeper.connect=127.0.0.1:{zookeeper_port}\noffsets.topic.replication.factor=1\n"
        "offsets.topic.num.partitions=1\nlog.cleaner.backoff.ms=200\n"
        "log.cleaner.dedupe.buffer.size=2097152\n"
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    with (
        process(libs, directory, main, zookeeper, zookeeper_port),
        process(libs, directory, "kafka.Kafka", properties, port),
    ):
        yield f"127.0.0.1:{port}"


def write(bootstrap: str) -> None:
    """Write to every topic with every codec."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1, config=config) for name, config in TOPICS.items()]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for topic in ("magic0", "magic1", "appended", "upgraded", "trimmed"):
        fill(bootstrap, topic)
    for future in admin.delete_records([TopicPartition("trimmed", 0, 18)]).values():
        future.result(30)
    upgraded = ConfigResource(
        ConfigResource.Type.TOPIC, "upgraded", {"message.format.version": "2.8", **SMALL}
    )
    for future in admin.alter_configs([upgraded]).values():
        future.result(30)
    fill(bootstrap, "upgraded")
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(12):
        value = None if n == 7 else f"{n}".encode()
        producer.produce("compacted", value, key=f"{n % 3}".encode(), partition=0)
        producer.flush(30)
        time.sleep(0.3)
    time.sleep(5)


def fill(bootstrap: str, topic: str) -> None:
    """Write 12 records with each codec, in batches of four."""
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 200}
        )
        for n in range(12):
            key = None if n % 5 == 0 else f"key {n}".encode()
            value = None if n % 7 == 6 else f"{codec} {n} ".encode() * 8
            producer.produce(topic, value, key=key, partition=0)
            if n % 4 == 3:
                producer.flush(30)


def consume(bootstrap: str, topic: str) -> list[list[object]]:
    """Return what a consumer gets, from the log start to the end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    )
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, low)])
    found: list[list[object]] = []
    while (message := consumer.poll(30)) is not None and not message.error():
        kind, timestamp = message.timestamp()
        key, value = (
            None if data is None else data.decode() for data in (message.key(), message.value())
        )
        found.append([message.offset(), kind, timestamp, key, value])
    consumer.close()
    return found


def main(libs: Path) -> None:
    """Make the directory anew."""
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with old_kafka(libs, directory) as bootstrap:
            write(bootstrap)
            expected = {topic: consume(bootstrap, topic) for topic in TOPICS}
        data = directory / "data"
        for path in data.iterdir():
            if path.is_file() and path.name != ".lock":
                shutil.copy(path, TARGET / path.name)
        for topic in TOPICS:
            shutil.copytree(data / f"{topic}-0", TARGET / f"{topic}-0")
    (TARGET / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
