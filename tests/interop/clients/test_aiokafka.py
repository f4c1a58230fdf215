"""aiokafka does its ordinary work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.broker_process import BrokerProcess

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic as OurNewTopic

T = TypeVar("T")

TIMEOUT_S = 60.0

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([OurNewTopic(name, 2)]).get_all()
    return name


def run(work: Awaitable[T]) -> T:
    async def limited() -> T:
        return await asyncio.wait_for(work, TIMEOUT_S)

    return asyncio.run(limited())


@asynccontextmanager
async def producer_of(broker: BrokerProcess, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer_of(
    broker: BrokerProcess, *topics: str, **settings: object
) -> AsyncIterator[AIOKafkaConsumer]:
    defaults = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **defaults | settings)
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def read(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        found = await consumer.getmany(timeout_ms=200, max_records=count - len(records))
        for some in found.values():
            records += some
    return records


async def write(broker: BrokerProcess, topic: str, values: list[bytes], **settings: object) -> None:
    async with producer_of(broker, **settings) as producer:
        sent = [await producer.send(topic, value, partition=0) for value in values]
        await asyncio.gather(*sent)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_codecs(broker: BrokerProcess, topic: str, codec: str | None) -> None:
    values = [b"%d " % number * 50 for number in range(300)]

    async def work() -> None:
        await write(broker, topic, values, compression_type=codec, linger_ms=20)
        async with consumer_of(broker) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert [record.value for record in await read(consumer, 300)] == values

    run(work())


def test_keys_headers_nulls_and_timestamps(broker: BrokerProcess, topic: str) -> None:
    headers = [("a", b"1"), ("a", b"")]

    async def work() -> list[ConsumerRecord]:
        async with producer_of(broker) as producer:
            await producer.send_and_wait(
                topic, b"v", b"k", partition=1, timestamp_ms=1234, headers=headers
            )
            await producer.send_and_wait(topic, None, b"tombstone", partition=1)
        async with consumer_of(broker) as consumer:
            consumer.assign([TopicPartition(topic, 1)])
            return await read(consumer, 2)

    first, second = run(work())
    assert (first.key, first.value, list(first.headers)) == (b"k", b"v", headers)
    assert (first.timestamp, first.offset) == (1234, 0)
    assert (second.key, second.value, second.offset) == (b"tombstone", None, 1)


def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    values = [b"%d" % number for number in range(3_000)]

    async def work() -> None:
        await write(broker, topic, values, enable_idempotence=True, max_batch_size=500)
        async with consumer_of(broker) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            assert [record.value for record in await read(consumer, 3_000)] == values

    run(work())


def test_a_group_commits_and_goes_on(broker: BrokerProcess, topic: str) -> None:
    group = f"group-{topic}"
    place = TopicPartition(topic, 0)

    async def work() -> None:
        await write(broker, topic, [b"%d" % number for number in range(10)])
        async with consumer_of(broker, topic, group_id=group) as consumer:
            assert [r.value for r in await read(consumer, 4)] == [b"0", b"1", b"2", b"3"]
            await consumer.commit()
        async with consumer_of(broker, topic, group_id=group) as consumer:
            assert await consumer.committed(place) == 4
            assert (await read(consumer, 6))[0].value == b"4"

    run(work())


def test_two_members_share_the_partitions(broker: BrokerProcess, topic: str) -> None:
    settings = {"group_id": f"two-{topic}", "heartbeat_interval_ms": 200}

    async def work() -> None:
        async with (
            consumer_of(broker, topic, **settings) as one,
            consumer_of(broker, topic, **settings) as two,
        ):
            deadline = time.monotonic() + TIMEOUT_S
            while not (len(one.assignment()) == len(two.assignment()) == 1):
                assert time.monotonic() < deadline
                await asyncio.gather(one.getmany(timeout_ms=100), two.getmany(timeout_ms=100))
            assert one.assignment().isdisjoint(two.assignment())

    run(work())


def test_looking_up_offsets_by_time_and_seeking(broker: BrokerProcess, topic: str) -> None:
    place = TopicPartition(topic, 0)

    async def work() -> None:
        async with producer_of(broker) as producer:
            for number in range(10):
                await producer.send_and_wait(
                    topic, b"%d" % number, partition=0, timestamp_ms=1000 + 10 * number
                )
        async with consumer_of(broker) as consumer:
            consumer.assign([place])
            assert await consumer.beginning_offsets([place]) == {place: 0}
            assert await consumer.end_offsets([place]) == {place: 10}
            assert (await consumer.offsets_for_times({place: 1045}))[place].offset == 5
            assert (await consumer.offsets_for_times({place: 2000}))[place] is None
            consumer.seek(place, 8)
            assert [record.value for record in await read(consumer, 2)] == [b"8", b"9"]

    run(work())


def test_admin(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    name = new_topic()

    async def work() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            config = {"retention.ms": "86400000"}
            await admin.create_topics([NewTopic(name, 3, 1, topic_configs=config)])
            await admin.create_partitions({name: NewPartitions(5)})
            (described,) = await admin.describe_topics([name])
            assert len(described["partitions"]) == 5
            resource = ConfigResource(ConfigResourceType.TOPIC, name)
            (settings,) = await admin.describe_configs([resource])
            assert "86400000" in str(settings)
            await admin.delete_records({TopicPartition(name, 0): _records_to_delete(0)})
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    run(work())


def _records_to_delete(before: int) -> object:
    from aiokafka.admin.records_to_delete import RecordsToDelete

    return RecordsToDelete(before_offset=before)
