"""MirrorMaker 2 from Apache Kafka to a broker of ours: the way that ``docs/migrating.md`` names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from bench.peers.kafka import KafkaInstall, KafkaNode, KafkaNotFoundError, find_kafka_programs
from tests.broker_process import BrokerProcess
from tests.interop.java.program import Program
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, Producer, TopicPartition
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

MIRROR_MAKER: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
TOPIC: Final = "orders"
GROUP: Final = "billing"
PARTITIONS: Final = 3
RECORDS: Final = 3_000
READ: Final = 1_000
"""So many records has the group read and committed before it moves."""


@pytest.fixture(scope="module")
def programs() -> KafkaInstall:
    try:
        return find_kafka_programs()
    except KafkaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaNode]:
    try:
        node = small_kafka_node(tmp_path / "kafka", {})
    except KafkaUnavailableError as error:
        pytest.skip(str(error))
    with node:
        yield node


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


def write(bootstrap: str, numbers: range) -> None:
    with Producer(bootstrap_servers=bootstrap, batch_size=500) as producer:
        for number in numbers:
            headers = [("number", b"%d" % number)]
            partition = number % PARTITIONS
            producer.send(TOPIC, b"v%d" % number, partition=partition, headers=headers)


def read_in_group(bootstrap: str, *, until: Callable[[list[int]], bool]) -> list[int]:
    """Read as a member of the group until enough was read, and commit; return the numbers."""
    numbers: list[int] = []
    with Consumer[bytes, bytes](
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    ) as consumer:
        consumer.subscribe([TOPIC])

        def is_read() -> bool:
            numbers.extend(number_of(each.headers) for each in consumer.poll(0.5))
            return until(numbers)

        wait_until(is_read, "the records of the group")
        consumer.commit()
    return numbers


def number_of(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return int(dict(headers)["number"] or b"")


def committed(bootstrap: str) -> dict[int, int]:
    """Return the group's offsets by partition."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_group_offsets([GROUP]).get_all()[GROUP]
    return {place.partition: each.offset for place, each in offsets.items()}


def mirror_settings(kafka: KafkaNode, broker: BrokerProcess) -> dict[str, str]:
    return {
        "clusters": "old,new",
        "old.bootstrap.servers": kafka.bootstrap,
        "new.bootstrap.servers": broker.bootstrap,
        "old->new.enabled": "true",
        "old->new.topics": TOPIC,
        "old->new.groups": GROUP,
        "new->old.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "new.exactly.once.source.support": "enabled",
        "replication.factor": "1",
        **{
            f"{name}.replication.factor": "1"
            for name in (
                *("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic"),
                *("offset.storage", "status.storage", "config.storage"),
            )
        },
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "offset.lag.max": "0",
        "dedicated.mode.enable.internal.rest": "false",
    }


def test_topics_settings_and_group_offsets_move(
    programs: KafkaInstall, kafka: KafkaNode, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        topic = NewTopic(TOPIC, partitions=PARTITIONS, configs={"retention.ms": "86400000"})
        admin.create_topics([topic]).get_all()
    write(kafka.bootstrap, range(RECORDS))
    mirror = Program(
        programs, MIRROR_MAKER, tmp_path / "mirror", mirror_settings(kafka, own_broker)
    )
    with mirror:
        wait_until(lambda: ends(own_broker) == RECORDS, "a copy of each record", at_most_s=120)
        before = read_in_group(kafka.bootstrap, until=lambda read: len(read) >= READ)
        write(kafka.bootstrap, range(RECORDS, RECORDS + 300))
        wait_until(lambda: ends(own_broker) == RECORDS + 300, "the later records")
        wait_until(
            lambda: sum(committed(own_broker.bootstrap).values()) > 0,
            "the offsets of the group",
            at_most_s=120,
        )
    everything = set(range(RECORDS + 300))
    after = read_in_group(own_broker.bootstrap, until=lambda read: everything <= {*before, *read})
    # MirrorMaker knows some pairs of offsets and takes the last one before the group's: a few
    # records are read again, and none is left out.
    assert len(set(after)) == len(after) < len(everything)
    with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
        resource = Resource(ResourceType.TOPIC, TOPIC)
        values = admin.describe_configs([resource]).get_all()[resource]
    assert {each.name: each.value for each in values}["retention.ms"] == "86400000"


def ends(broker: BrokerProcess) -> int:
    """Return how many committed records of the topic the new cluster has; 0 before it has any."""
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        if TOPIC not in admin.list_topics():
            return 0
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
    ) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        found = 0
        while any(
            consumer.position(place) < end for place, end in consumer.end_offsets(places).items()
        ):
            found += len(consumer.poll(0.5))
    return found
