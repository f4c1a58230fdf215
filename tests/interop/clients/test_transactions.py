"""Transactional producers of other clients: committed records are read, aborted ones are not, and a
second producer of the same transactional id shuts the first one out.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import ProducerFenced
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from tests.broker_process import BrokerProcess

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way that Python 3.11 warns of.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaProducer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

TIMEOUT_S = 30.0
PARTITIONS = 3


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS)]).get_all()
    return name


def values(
    broker: BrokerProcess,
    topic: str,
    count: int,
    *,
    isolation: str = "read_committed",
    **more: object,
) -> list[str]:
    """Return the first ``count`` values of the topic, and what else comes at once, sorted."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader-of-{topic}",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            **more,
        }
    )
    consumer.assign([ConfluentPartition(topic, index, 0) for index in range(PARTITIONS)])
    found = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        message = consumer.poll(2.0 if len(found) >= count else TIMEOUT_S)
        if message is None:
            break
        assert message.error() is None
        found.append(message.value().decode())
    consumer.close()
    return sorted(found)


def librdkafka(broker: BrokerProcess, transactional_id: str, **settings: object) -> Producer:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, **settings}
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_librdkafka_commits_and_aborts(broker: BrokerProcess, topic: str) -> None:
    producer = librdkafka(broker, f"tx-{topic}")
    for number in range(10):
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce(topic, f"{number}-{index}", partition=index)
        if number % 2:
            producer.flush()  # aborted records are in the log
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    everything = [f"{number}-{index}" for number in range(10) for index in range(PARTITIONS)]
    committed = [each for each in everything if int(each.split("-")[0]) % 2 == 0]
    assert values(broker, topic, len(committed)) == committed
    small = {"fetch.message.max.bytes": 100, "fetch.max.bytes": 1_000, "message.max.bytes": 1_000}
    assert values(broker, topic, len(committed), **small) == committed
    read = values(broker, topic, len(everything), isolation="read_uncommitted")
    assert read == everything


def test_librdkafka_hands_offsets_to_its_transaction(
    broker: BrokerProcess, topic: str, new_topic: Callable[[], str]
) -> None:
    source = new_topic()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(source, 1)]).get_all()
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(20):
        plain.produce(source, str(number), partition=0)
    assert plain.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"copy-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    producer = librdkafka(broker, f"copy-{topic}")
    copied = 0
    while copied < 20:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        producer.begin_transaction()
        producer.produce(topic, message.value(), partition=copied % PARTITIONS)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            TIMEOUT_S,
        )
        if copied % 5 == 4:
            producer.abort_transaction(TIMEOUT_S)
            producer.begin_transaction()
            producer.produce(topic, message.value(), partition=copied % PARTITIONS)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
        producer.commit_transaction(TIMEOUT_S)
        copied += 1
    (committed,) = consumer.committed([ConfluentPartition(source, 0)], TIMEOUT_S)
    assert committed.offset == 20
    consumer.close()
    assert values(broker, topic, 20) == sorted(map(str, range(20)))


def test_librdkafka_is_fenced_by_its_successor(broker: BrokerProcess, topic: str) -> None:
    first = librdkafka(broker, f"tx-{topic}")
    first.begin_transaction()
    first.produce(topic, "zombie", partition=0)
    first.flush(TIMEOUT_S)
    second = librdkafka(broker, f"tx-{topic}")
    second.begin_transaction()
    second.produce(topic, "successor", partition=0)
    second.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    error = caught.value.args[0]
    assert error.fatal()
    assert error.code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
    assert values(broker, topic, 1) == ["successor"]


@pytest.mark.long
def test_librdkafka_of_a_transaction_that_takes_too_long(broker: BrokerProcess, topic: str) -> None:
    slow = librdkafka(broker, f"tx-{topic}", **{"transaction.timeout.ms": 1_000})
    slow.begin_transaction()
    slow.produce(topic, "late", partition=0)
    slow.flush(TIMEOUT_S)
    fast = Producer({"bootstrap.servers": broker.bootstrap})
    fast.produce(topic, "other", partition=0)
    assert fast.flush(TIMEOUT_S) == 0
    assert values(broker, topic, 1, isolation="read_committed") == ["other"]
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)


def test_kafka_python_commits_and_aborts(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{topic}", acks="all"
    )
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        sent = [
            producer.send(topic, f"{number}-{index}".encode(), partition=index)
            for index in range(PARTITIONS)
        ]
        for each in sent:
            each.get(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    committed = [f"{number}-{index}" for number in (0, 2, 4) for index in range(PARTITIONS)]
    assert values(broker, topic, len(committed)) == committed


def test_aiokafka_commits_aborts_and_is_fenced(broker: BrokerProcess, topic: str) -> None:
    async def story() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{topic}"
        )
        await producer.start()
        for number in range(6):
            await producer.begin_transaction()
            for index in range(PARTITIONS):
                await producer.send_and_wait(topic, f"{number}-{index}".encode(), partition=index)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        successor = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=f"tx-{topic}"
        )
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"zombie", partition=0)
        await successor.start()
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        await successor.stop()
        await producer.stop()

    asyncio.run(asyncio.wait_for(story(), 3 * TIMEOUT_S))
    committed = [f"{number}-{index}" for number in (0, 2, 4) for index in range(PARTITIONS)]
    assert values(broker, topic, len(committed)) == committed
