"""A key goes to the partition that Java's and librdkafka's producers choose."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.kafka_cluster import kafka_jars
from tests.interop.producer.keys import PARTITIONS, random_keys

from millstream.client.core.producer.partitioner import KeyPartitioner
from millstream.client.partitioner import partition_for_key

pytestmark = pytest.mark.interop

KAFKAS_CHOICES = "39752c26df8ae09b3e451523d41288256dc7c1387a7a3f0355b5f9ea05cf3115"
"""SHA-256 of what Apache Kafka 4.3 chooses, as ``test_as_java_chooses`` reads it."""


def ours() -> list[int]:
    choose = KeyPartitioner()
    return [choose.partition(key, PARTITIONS) for key in random_keys()]


def test_in_c_and_in_python_and_as_java_chose() -> None:
    choices = ours()
    assert choices == [partition_for_key(key, PARTITIONS) for key in random_keys()]
    assert hashlib.sha256(repr(choices).encode()).hexdigest() == KAFKAS_CHOICES


@pytest.mark.java
def test_as_java_chooses() -> None:
    java = shutil.which("java")
    assert java is not None
    source = Path(__file__).with_name("Partitions.java")
    done = subprocess.run(
        [java, "-cp", f"{kafka_jars()}/*", str(source), str(PARTITIONS)],
        input="".join(f"{key.hex()}\n" for key in random_keys()),
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    assert [int(line) for line in done.stdout.split()] == ours()


@pytest.mark.system
def test_as_librdkafka_chooses(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    topic, keys = new_topic(), random_keys()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"}
    )
    chosen: dict[bytes, int] = {}

    def told(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        chosen[message.key() or b""] = message.partition()

    for key in keys:
        producer.produce(topic, b"", key, on_delivery=told)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert [chosen[key] for key in keys] == ours()
