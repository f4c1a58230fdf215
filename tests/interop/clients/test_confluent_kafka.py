"""confluent-kafka (librdkafka) does its ordinary work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.broker_process import BrokerProcess

TIMEOUT_S = 60.0

pytestmark = pytest.mark.interop

Topics = Callable[[], str]


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def topic(admin: AdminClient, new_topic: Topics) -> str:
    name = new_topic()
    wait(admin.create_topics([NewTopic(name, 2, 1)]))
    return name


def wait(futures: dict[str, object]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)  # type: ignore[attr-defined]


@contextmanager
def consumer_of(broker: BrokerProcess, **settings: object) -> Iterator[confluent_kafka.Consumer]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def read(consumer: confluent_kafka.Consumer, count: int) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records"
        for message in consumer.consume(count - len(messages), timeout=0.2):
            assert message.error() is None
            messages.append(message)
    return messages


def write(broker: BrokerProcess, topic: str, values: list[bytes], **settings: object) -> None:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **names})
    errors: list[KafkaError] = []
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, message: errors.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(broker: BrokerProcess, topic: str, codec: str) -> None:
    values = [b"%d " % number * 50 for number in range(300)]
    write(broker, topic, values, compression_type=codec, linger_ms=20)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in read(consumer, 300)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: BrokerProcess, topic: str, acks: object) -> None:
    write(broker, topic, [b"a", b"b"], acks=acks)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in read(consumer, 2)] == [b"a", b"b"]


def test_keys_headers_nulls_and_timestamps(broker: BrokerProcess, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    headers = [("a", b"1"), ("a", b""), ("ü", None)]
    producer.produce(topic, b"v", b"k", partition=1, timestamp=1234, headers=headers)
    producer.produce(topic, None, b"tombstone", partition=1, timestamp=5678)
    assert producer.flush(TIMEOUT_S) == 0
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 1, 0)])
        first, second = read(consumer, 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1234)
    assert (second.key(), second.value(), second.headers()) == (b"tombstone", None, None)
    assert [first.offset(), second.offset()] == [0, 1]


def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    values = [b"%d" % number for number in range(5_000)]
    write(broker, topic, values, enable_idempotence=True, linger_ms=1, batch_num_messages=50)
    with consumer_of(broker) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in read(consumer, 5_000)] == values


def test_a_group_divides_partitions_commits_and_goes_on(
    broker: BrokerProcess, topic: str, admin: AdminClient
) -> None:
    group = f"group-{topic}"
    for partition in (0, 1):
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            producer.produce(topic, b"%d" % number, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
    settings = {"group_id": group, "heartbeat_interval_ms": 200, "session_timeout_ms": 6000}
    with consumer_of(broker, **settings) as one, consumer_of(broker, **settings) as two:
        for each in (one, two):
            each.subscribe([topic])
        found: dict[int, list[bytes | None]] = {0: [], 1: []}
        deadline = time.monotonic() + TIMEOUT_S
        while sum(map(len, found.values())) < 20 or not (one.assignment() and two.assignment()):
            assert time.monotonic() < deadline, found
            for each in (one, two):
                for message in each.consume(100, timeout=0.1):
                    assert message.error() is None
                    found[message.partition()].append(message.value())
                    each.commit(message, asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert len(described.members) == 2
        assert {len(m.assignment.topic_partitions) for m in described.members} == {1}
    assert set(found[0]) == {b"%d" % number for number in range(10)}
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with consumer_of(broker, group_id=group) as third:
        assert [each.offset for each in third.committed(places, TIMEOUT_S)] == [10, 10]
        write(broker, topic, [b"later"])
        third.subscribe([topic])
        assert [message.value() for message in read(third, 1)] == [b"later"]


def test_cooperative_members(broker: BrokerProcess, topic: str) -> None:
    settings = {
        "group_id": f"cooperative-{topic}",
        "partition_assignment_strategy": "cooperative-sticky",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6000,
        "group_instance_id": "first",
    }
    with consumer_of(broker, **settings) as one:
        one.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        while len(one.assignment()) < 2:
            assert time.monotonic() < deadline
            one.poll(0.1)
        with consumer_of(broker, **settings | {"group_instance_id": "second"}) as two:
            two.subscribe([topic])
            while not (len(one.assignment()) == len(two.assignment()) == 1):
                assert time.monotonic() < deadline
                one.poll(0.1)
                two.poll(0.1)


def test_looking_up_offsets_by_time_and_seeking(broker: BrokerProcess, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1000 + 10 * number)
    assert producer.flush(TIMEOUT_S) == 0
    with consumer_of(broker) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 10)
        asked = [TopicPartition(topic, 0, moment) for moment in (0, 1045, 1090)]
        found = [consumer.offsets_for_times([each], TIMEOUT_S)[0].offset for each in asked]
        assert found == [0, 5, 9]
        (after,) = consumer.offsets_for_times([TopicPartition(topic, 0, 1091)], TIMEOUT_S)
        assert after.offset == confluent_kafka.OFFSET_END
        consumer.assign([TopicPartition(topic, 0, 3)])
        assert read(consumer, 1)[0].value() == b"3"
        consumer.seek(TopicPartition(topic, 0, 8))
        assert [message.value() for message in read(consumer, 2)] == [b"8", b"9"]


def test_an_offset_that_is_out_of_range(broker: BrokerProcess, topic: str) -> None:
    write(broker, topic, [b"a"])
    with consumer_of(broker, auto_offset_reset="error") as consumer:
        consumer.assign([TopicPartition(topic, 0, 50)])
        message = None
        deadline = time.monotonic() + TIMEOUT_S
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.2)
        assert message is not None
        assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_admin(broker: BrokerProcess, admin: AdminClient, new_topic: Topics) -> None:
    name = new_topic()
    wait(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "86400000"})]))
    with pytest.raises(KafkaException) as raised:
        wait(admin.create_topics([NewTopic(name, 3, 1)]))
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    wait(admin.create_partitions([NewPartitions(name, 5)]))
    assert len(admin.list_topics(name, TIMEOUT_S).topics[name].partitions) == 5

    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    change = ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    altering = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[change])
    wait(admin.incremental_alter_configs([altering]))
    settings = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert settings["segment.bytes"].value == "2000000"
    assert settings["retention.ms"].value == "86400000"
    assert settings["cleanup.policy"].is_default

    place = TopicPartition(name, 0)
    latest = admin.list_offsets({place: OffsetSpec.latest()})[place].result(TIMEOUT_S)
    assert latest.offset == 0
    assert len(admin.describe_cluster().result(TIMEOUT_S).nodes) == 1
    wait(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


def test_deleting_records_and_groups(broker: BrokerProcess, admin: AdminClient, topic: str) -> None:
    write(broker, topic, [b"%d" % number for number in range(10)])
    place = TopicPartition(topic, 0, 4)
    deleted = admin.delete_records([place])[place].result(TIMEOUT_S)
    assert deleted.low_watermark == 4
    group = f"deleted-{topic}"
    with consumer_of(broker, group_id=group) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (4, 10)
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    names = {each.group_id for each in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    assert group in names
    wait(admin.delete_consumer_groups([group]))
    names = {each.group_id for each in admin.list_consumer_groups().result(TIMEOUT_S).valid}
    assert group not in names
