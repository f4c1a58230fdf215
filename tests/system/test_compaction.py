"""Compaction in a real broker: committed offsets, and keys under load with ``kill -9``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess

pytestmark = [pytest.mark.system, pytest.mark.slow]

MIB = 1 << 20
CLEANER = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": str(8 * MIB),
    "log.segment.delete.delay.ms": "0",
}


def create(broker: BrokerProcess, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    named = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=named)]).values():
        future.result(30)


def log_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def wait_until_cleaned(broker: BrokerProcess, partition: str) -> None:
    deadline = time.monotonic() + 60
    while f"cleaned {partition} " not in broker.log:
        assert time.monotonic() < deadline, broker.log[-2000:]
        time.sleep(0.1)


def test_committed_offsets_are_compacted_and_survive(tmp_path: Path) -> None:
    settings = CLEANER | {
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": str(MIB),
        "log.cleaner.min.cleanable.ratio": "0.2",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        create(broker, "work", 200)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "committer"})
        directory = broker.data_directory / "__consumer_offsets-0"
        for number in range(150):
            offsets = [At("work", index, number * 1000 + index) for index in range(200)]
            consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        wait_until_cleaned(broker, "__consumer_offsets-0")
        deadline = time.monotonic() + 60
        # Two segments at most are not clean: the active one, and one that is not worth it alone.
        while log_bytes(directory) > 2.2 * MIB:
            assert time.monotonic() < deadline, list(directory.iterdir())
            time.sleep(0.1)
        assert (broker.data_directory / "cleaner-offset-checkpoint").exists()
        for kill in (False, True):
            if kill:
                broker.kill()
            else:
                broker.stop()
            broker.start()
            reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "committer"})
            asked = [At("work", index) for index in range(200)]
            found = {at.partition: at.offset for at in reader.committed(asked, timeout=30)}
            reader.close()
            assert found == {index: 149 * 1000 + index for index in range(200)}


def read_table(broker: BrokerProcess, topic: str) -> dict[bytes, int]:
    """Read a topic from its start; return the number in the last value of each key."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([At(topic, 0, 0)])
    table: dict[bytes, int] = {}
    previous = -1
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        offset, key, value = message.offset(), message.key(), message.value()
        assert offset is not None
        assert offset > previous
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        previous = offset
        table[key] = int(value.split(b".")[0])
    consumer.close()
    return table


def test_nothing_acknowledged_is_lost_when_a_cleaning_is_killed(tmp_path: Path) -> None:
    acknowledged: dict[bytes, int] = {}
    sent = 0
    with BrokerProcess(tmp_path, CLEANER) as broker:
        create(
            broker, "table", 1, cleanup_policy="compact", segment_bytes=str(MIB),
            min_cleanable_dirty_ratio="0.01",
        )  # fmt: skip
        for round_ in range(4):
            producer = Producer(
                {
                    "bootstrap.servers": broker.bootstrap,
                    "linger.ms": 5,
                    "compression.type": ("none", "lz4")[round_ % 2],
                    "message.timeout.ms": 3000,
                }
            )

            def delivered(error: object, message: object) -> None:
                if error is None:
                    key, number = message.key(), int(message.value().split(b".")[0])  # type: ignore[attr-defined]
                    acknowledged[key] = max(number, acknowledged.get(key, -1))

            cleanings = broker.log.count("cleaned table-0")
            until = time.monotonic() + 30
            while broker.log.count("cleaned table-0") < cleanings + 3:
                assert time.monotonic() < until, broker.log[-2000:]
                for _ in range(1000):
                    key = b"key-%d" % (sent * 7919 % 300)
                    producer.produce(
                        "table", b"%d." % sent + b"v" * 800, key, on_delivery=delivered
                    )
                    sent += 1
                producer.poll(0)
                if len(producer) > 4000:
                    producer.flush(10)
            broker.kill()
            producer.purge()
            producer.flush(5)
            broker.start()
            found = read_table(broker, "table")
            for key, number in acknowledged.items():
                assert number <= found[key] < sent
        directory = broker.data_directory / "table-0"
        assert log_bytes(directory) < sent * 800 / 2
        names = [path.name for path in directory.iterdir()]
        assert not [name for name in names if name.endswith((".swap", ".cleaned"))]


def test_records_without_a_key_are_refused_by_name(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        create(broker, "table", 1, cleanup_policy="compact")
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("table", b"v", on_delivery=lambda error, message: errors.append(error))
        producer.flush(30)
        (error,) = errors
        assert isinstance(error, KafkaError)
        assert error.name() == "INVALID_RECORD"
