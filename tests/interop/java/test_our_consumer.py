"""Our consumer beside Java's: groups with it, what it writes, and Apache Kafka as the broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from tests.broker_process import BrokerProcess
from tests.interop.clients.mixed_group import Member, Ours
from tests.interop.clients.test_our_consumer import share_a_group
from tests.interop.java.conftest import MAIN_CLASSES, KafkaTools, create, server
from tests.interop.kafka_cluster import JavaTool, KafkaNode, kafka_jars, small_kafka_node

from millstream.client import Consumer, TopicPartition, aio

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 300

STRATEGIES = {
    "range": "RangeAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


class Java(Member):
    """Kafka's VerifiableConsumer: it tells every event as a line of JSON."""

    process: subprocess.Popen[str] | None = None

    def read(self) -> None:
        command = JavaTool(kafka_jars()).command(
            MAIN_CLASSES["kafka-verifiable-consumer"],
            *("--bootstrap-server", self.bootstrap, "--topic", self.topic),
            *("--group-id", self.group, "--session-timeout", "6000"),
            *("--reset-policy", "earliest"),
            "--assignment-strategy",
            f"org.apache.kafka.clients.consumer.{STRATEGIES[self.strategy]}",
        )
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            self.process = process
            assert process.stdout is not None
            for line in process.stdout:
                self.take(line)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
        super().stop()

    def take(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        partitions = event.get("partitions", [])
        if event["name"] == "records_consumed":
            self.seen |= {
                (each["partition"], offset)
                for each in partitions
                for offset in range(each["minOffset"], each["maxOffset"] + 1)
            }
        elif event["name"] == "partitions_assigned":
            self.has |= {each["partition"] for each in partitions}
        elif event["name"] == "partitions_revoked":
            self.has -= {each["partition"] for each in partitions}


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("groups"), settings) as process:
        yield process


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    settings = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    node = small_kafka_node(tmp_path_factory.mktemp("kafka"), settings)
    node.start()
    yield node
    node.stop()


@pytest.mark.parametrize("kinds", [[Ours, Java, Ours], [Java, Ours]], ids=["ours", "java"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_group_with_java(
    group_broker: BrokerProcess,
    new_topic: Callable[[], str],
    strategy: str,
    kinds: list[type[Member]],
) -> None:
    share_a_group(group_broker.bootstrap, new_topic(), strategy, kinds)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_on_apache_kafka(
    kafka: KafkaNode, new_topic: Callable[[], str], strategy: str
) -> None:
    share_a_group(kafka.bootstrap, new_topic(), strategy, [Ours, Ours, Ours])


@pytest.mark.parametrize("codec", CODECS)
def test_what_java_writes(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str], codec: str
) -> None:
    topic = new_topic()
    create(broker, topic)
    lines = [
        f"h:{number}\t{'NULL' if number % 3 else f'k{number}'}\t"
        f"{'NULL' if number % 5 == 0 else f'{codec} ü {number}'}"
        for number in range(COUNT)
    ]
    tools.run(
        "kafka-console-producer",
        *server(broker),
        *("--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin="".join(f"{line}\n" for line in lines),
    )
    with Consumer[str, str](
        bootstrap_servers=broker.bootstrap,
        key_deserializer=lambda topic, data: data.decode(),
        value_deserializer=lambda topic, data: data.decode(),
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = []
        for record in consumer:
            ((name, value),) = record.headers
            assert value is not None
            found.append(
                f"{name}:{value.decode()}\t{'NULL' if record.key is None else record.key}\t"
                f"{'NULL' if record.value is None else record.value}"
            )
            if len(found) == COUNT:
                break
    assert found == lines


def test_transactions_that_kafka_aborted(kafka: KafkaNode, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": topic, "linger.ms": 0}
    )
    producer.init_transactions(30)
    for number in range(10):
        producer.begin_transaction()
        for each in range(20):
            producer.produce(topic, f"{number}.{each}".encode(), partition=0)
            if each % 5 == 4:
                producer.flush(30)
        producer.abort_transaction(30) if number % 2 else producer.commit_transaction(30)
    everything = [f"{number}.{each}".encode() for number in range(10) for each in range(20)]
    committed = [value for value in everything if value[:1] in b"02468"]
    for fetch_bytes in (1, 1_048_576):
        for level, expected in (("read_committed", committed), ("read_uncommitted", everything)):
            settings: dict[str, object] = {
                "bootstrap.servers": kafka.bootstrap,
                "isolation.level": level,
                "auto.offset.reset": "earliest",
                "max.partition.fetch.bytes": fetch_bytes,
            }
            assert read_to_end(settings, topic) == expected
            assert asyncio.run(read_to_end_async(settings, topic)) == expected


def read_to_end(settings: dict[str, object], topic: str) -> list[bytes | None]:
    place = TopicPartition(topic, 0)
    with Consumer[bytes, bytes](settings) as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        found: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while consumer.position(place) < end:
            assert time.monotonic() < deadline, found
            found += [record.value for record in consumer.poll(0.5)]
        return found


async def read_to_end_async(settings: dict[str, object], topic: str) -> list[bytes | None]:
    place = TopicPartition(topic, 0)
    async with aio.Consumer[bytes, bytes](settings) as consumer:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        found: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while await consumer.position(place) < end:
            assert time.monotonic() < deadline, found
            found += [record.value for record in await consumer.poll(0.5)]
        return found
