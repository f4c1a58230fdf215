"""The administrator against a real broker: everything that the broker serves."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.broker_process import BrokerProcess

from millstream.client import Admin, Producer, aio
from millstream.client.core.admin.configs import (
    Change,
    Operation,
    Resource,
    ResourceType,
    Source,
)
from millstream.client.core.admin.groups import Committed
from millstream.client.core.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from millstream.client.core.admin.topics import TO_HIGH_WATERMARK, NewTopic
from millstream.client.errors import ClosedError, UnsupportedVersionError
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition

pytestmark = pytest.mark.system


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


@pytest.fixture
def topic(admin: Admin, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    admin.create_topics([NewTopic(name, 2, 1)]).get_all()
    return name


def fill(broker: BrokerProcess, topic: str, count: int = 10) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1000 + number)


def test_topics(admin: Admin, new_topic: Callable[[], str]) -> None:
    name, other = new_topic(), new_topic()
    created = admin.create_topics(
        [
            NewTopic(name, 3, 1, {"retention.ms": "1000"}),
            NewTopic(other, assignments={0: [1]}),
            NewTopic("a/b", 1, 1),
        ]
    )
    assert created[name].get().partitions == 3
    assert created["a/b"].error is not None
    assert created["a/b"].error.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert admin.create_topics([NewTopic(name)]).errors[name].error is (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )
    assert name in admin.list_topics()
    described = admin.describe_topics([name, "missing"])
    assert len(described[name].get().partitions) == 3
    assert described["missing"].error is not None
    assert not admin.create_partitions({name: 5}).errors
    assert len(admin.describe_topics([name])[name].get().partitions) == 5
    assert admin.create_partitions({name: 2}).errors[name].error is ErrorCode.INVALID_PARTITIONS
    topic_id = described[name].get().topic_id
    assert not admin.delete_topics_by_id([topic_id]).errors
    outcomes = admin.delete_topics([other, "missing"])
    assert outcomes[other].error is None
    assert outcomes["missing"].error is not None
    assert name not in admin.list_topics()


def test_configs(admin: Admin, topic: str) -> None:
    resource = Resource(ResourceType.TOPIC, topic)
    missing = Resource(ResourceType.TOPIC, "missing")
    outcomes = admin.incremental_alter_configs(
        {
            resource: [
                Change("retention.ms", "5000"),
                Change("cleanup.policy", "compact", Operation.APPEND),
            ],
            missing: [Change("retention.ms", "1")],
        }
    )
    assert outcomes[resource].error is None
    assert outcomes[missing].error is not None
    settings = {each.name: each for each in admin.describe_configs([resource])[resource].get()}
    assert settings["retention.ms"].value == "5000"
    assert settings["retention.ms"].source is Source.TOPIC
    assert settings["cleanup.policy"].value == "delete,compact"
    some = admin.describe_configs({resource: ["retention.ms"]}, include_synonyms=True)
    assert [each.name for each in some[resource].get()] == ["retention.ms"]
    assert some[resource].get()[0].synonyms
    assert not admin.alter_configs({resource: {"retention.ms": "7000"}}).errors
    after = {each.name: each for each in admin.describe_configs([resource])[resource].get()}
    assert (after["retention.ms"].value, after["cleanup.policy"].value) == ("7000", "delete")
    assert resource in admin.list_config_resources([ResourceType.TOPIC])


def test_the_cluster(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    described = admin.describe_cluster()
    assert described.cluster_id
    assert [each.address.port for each in described.brokers] == [broker.port]
    assert described.controller_id == described.brokers[0].broker_id
    assert admin.describe_features().apis
    fill(broker, topic)
    directories = admin.describe_log_dirs().get_all()[described.controller_id]
    place = TopicPartition(topic, 0)
    assert directories[0].replicas[place].size_bytes > 0
    some = admin.describe_log_dirs([described.controller_id], topic_partitions=[place])
    assert set(some[described.controller_id].get()[0].replicas) == {place}


def test_offsets_and_records(admin: Admin, broker: BrokerProcess, topic: str) -> None:
    fill(broker, topic)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.delete_records({first: 4}).get_all() == {first: 4}

    def offset(place: TopicPartition, asked: int) -> int | None:
        found = admin.list_offsets({place: asked})[place].get()
        return None if found is None else found.offset

    assert (offset(first, EARLIEST), offset(first, LATEST)) == (4, 10)
    assert (offset(first, 1007), offset(first, MAX_TIMESTAMP)) == (7, 9)
    assert offset(first, 5000) is None
    assert offset(second, LATEST) == 0
    assert admin.delete_records({first: TO_HIGH_WATERMARK})[first].get() == 10
    assert admin.delete_records({first: 99})[first].error is not None
    producers = admin.describe_producers([first, TopicPartition(topic, 9)])
    assert producers[first].get()[0].last_sequence == 9
    assert producers[TopicPartition(topic, 9)].error is not None


def test_groups(admin: Admin, topic: str) -> None:
    place, group = TopicPartition(topic, 0), f"group-{topic}"
    assert not admin.alter_group_offsets(group, {place: Committed(5, metadata="mine")}).errors
    assert admin.alter_group_offsets(group, {TopicPartition(topic, 1): 7})
    committed = admin.list_group_offsets([group, "none"])
    assert committed[group].get()[place] == Committed(5, -1, "mine")
    assert committed["none"].get() == {}
    assert group in [each.group for each in admin.list_groups()]
    described = admin.describe_groups([group, "none"])
    assert described[group].get().state == "Empty"
    assert described["none"].error is not None
    assert not admin.delete_group_offsets(group, [place]).errors
    assert place not in admin.list_group_offsets([group])[group].get()
    outcomes = admin.delete_groups([group, "none"])
    assert outcomes[group].error is None
    assert outcomes["none"].error is not None
    removed = admin.remove_members(group, ["nobody"])
    assert removed["nobody"].error is not None


def test_what_the_broker_does_not_serve(admin: Admin) -> None:
    with pytest.raises(UnsupportedVersionError, match="does not serve"):
        admin.describe_quorum()


def test_nothing_is_left(broker: BrokerProcess) -> None:
    threads, descriptors = threading.active_count(), set(os.listdir("/proc/self/fd"))
    admin = Admin({"bootstrap.servers": broker.bootstrap})
    admin.list_topics()
    admin.close()
    admin.close()
    assert threading.active_count() == threads
    assert set(os.listdir("/proc/self/fd")) == descriptors
    with pytest.raises(ClosedError):
        admin.list_topics()


def test_under_asyncio(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    async def run() -> None:
        async with aio.Admin(bootstrap_servers=broker.bootstrap) as admin:
            name = new_topic()
            (await admin.create_topics([NewTopic(name, 1, 1)])).get_all()
            names, cluster = await asyncio.gather(admin.list_topics(), admin.describe_cluster())
            assert name in names
            assert cluster.cluster_id
        with pytest.raises(ClosedError):
            await admin.list_topics()

    asyncio.run(run())
