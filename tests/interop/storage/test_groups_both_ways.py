"""Consumer groups (KIP-848) of Apache Kafka go on here, and ours there, with members that live on.

One directory and one address are served by Kafka, by a broker of ours, and by Kafka again, while a
producer writes. Members of both protocols stay in a group all the time; other groups have ended, or
have a static member that is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from bench.peers.kafka import KafkaNode
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.clients.mixed_group import (
    Librdkafka,
    LibrdkafkaByHeartbeats,
    Member,
    OursByHeartbeats,
    committed,
    wait_for,
)
from tests.interop.clients.test_our_consumer import PARTITIONS, Source, stopping
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node

from millstream.client import Admin, Consumer, SubscriptionPattern
from millstream.client.core.admin.group_descriptions import GroupDescription
from millstream.client.core.admin.groups import Committed, ListedGroup
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC = "t"
LIVE = "live"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    # A member that waits for the next broker hears of its group soon, and is not taken for dead.
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "45000",
}
CLASSIC_SESSION_MS = 45_000

Broker = KafkaNode | BrokerProcess
Descriptions = dict[str, GroupDescription]
Offsets = dict[str, dict[TopicPartition, Committed]]


class PatientLibrdkafka(Librdkafka):
    """A classic member that outlives the time between two brokers."""

    def settings(self) -> dict[str, str | int | float | bool]:
        return super().settings() | {"session.timeout.ms": CLASSIC_SESSION_MS}


def read_some(bootstrap: str, group: str, **settings: object) -> None:
    """Join, read, commit, and leave the group; a static member stays in it."""
    with Consumer[bytes, bytes](
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    ) as consumer:
        if "group_instance_id" in settings and settings.get("group_protocol") == "consumer":
            consumer.subscribe(SubscriptionPattern(f"{TOPIC}|none"))
        else:
            consumer.subscribe([TOPIC])
        seen: set[int] = set()
        while len(seen) < PARTITIONS:
            seen |= {each.partition for each in consumer.poll(1)}
        consumer.commit()


def leave_groups_behind(bootstrap: str, writer: str) -> None:
    """Leave one group of each kind that ``writer`` keeps."""
    read_some(bootstrap, f"{writer}-classic")
    read_some(bootstrap, f"{writer}-consumer", group_protocol="consumer")
    read_some(bootstrap, f"{writer}-gone", group_protocol="consumer")
    for number in (1, 2):
        read_some(
            bootstrap,
            f"{writer}-static",
            group_protocol="consumer",
            group_instance_id=f"i{number}",
            client_id=f"c{number}",
        )
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.delete_groups([f"{writer}-gone"]).get_all()


def groups_of(bootstrap: str) -> list[ListedGroup]:
    """List the groups; the one that has members may be in any state."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.list_groups()
    return [replace(each, state="") if each.group == LIVE else each for each in found]


def descriptions(bootstrap: str, groups: list[ListedGroup]) -> Descriptions:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return dict(admin.describe_groups([each.group for each in groups]).get_all())


def offsets(bootstrap: str, groups: list[ListedGroup]) -> Offsets:
    """Return what every group has committed."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        return dict(admin.list_group_offsets([each.group for each in groups]).get_all())


def live_group(bootstrap: str) -> GroupDescription:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return admin.describe_groups([LIVE])[LIVE].get()


def without_epochs(description: GroupDescription) -> GroupDescription:
    """Each broker has a hash of the topics of its own, so a group's epoch may be one higher."""
    members = [replace(each, member_epoch=0) for each in description.members]
    return replace(
        description,
        group_epoch=0,
        assignment_epoch=0,
        members=tuple(sorted(members, key=lambda each: each.member_id)),
    )


class IdempotentSource(Source):
    """What it writes while no broker is there is in the log once."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap, topic)
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 1, "enable.idempotence": True}
        )

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            for partition in range(PARTITIONS):
                self.producer.produce(self.topic, b"%d" % self.written, partition=partition)
            self.written += 1
            self.producer.poll(0)


class LiveGroup:
    """A group whose members, of both protocols, know nothing of the brokers' turns."""

    def __init__(self, stack: ExitStack, bootstrap: str) -> None:
        self._stack = stack
        self._bootstrap = bootstrap
        self.source = IdempotentSource(bootstrap, TOPIC)
        self.source.start()
        stack.callback(self.source.stop)
        self.members: list[Member] = []
        kinds: list[type[Member]] = [OursByHeartbeats, LibrdkafkaByHeartbeats, PatientLibrdkafka]
        for kind in kinds:
            self.join(kind)

    def join(self, kind: type[Member]) -> Member:
        member = self._stack.enter_context(stopping(kind(self._bootstrap, LIVE, TOPIC, "range")))
        self.members.append(member)
        member.start()
        self.wait(self.is_divided)
        return member

    def is_divided(self) -> bool:
        shares = [each.has for each in self.members if each.is_alive()]
        whole = frozenset().union(*shares) == frozenset(range(PARTITIONS))
        return all(shares) and whole and sum(map(len, shares)) == PARTITIONS

    def seen(self) -> set[tuple[int, int]]:
        return set[tuple[int, int]]().union(*(each.seen for each in self.members))

    def goes_on(self) -> None:
        """Wait until every member that lives has read more."""
        living = [each for each in self.members if each.is_alive()]
        before = [len(each.seen) for each in living]
        self.wait(lambda: all(len(m.seen) > n for m, n in zip(living, before, strict=True)))

    def wait(self, condition: Callable[[], bool]) -> None:
        def story() -> object:
            return [(m.name, sorted(m.has), len(m.seen), m.failure) for m in self.members]

        wait_for(condition, story)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[KafkaNode]:
    try:
        node = small_kafka_node(tmp_path / "node", SETTINGS)
    except KafkaUnavailableError as missing:
        pytest.skip(str(missing))
    yield node
    node.stop()


def end(broker: Broker, ending: str) -> None:
    if ending == "killed":
        broker.kill()
    else:
        broker.stop()


def hand_over(live: LiveGroup, old: Broker, new: Broker, ending: str) -> None:
    """End one broker, start the other one in its place: all groups are as they were."""
    bootstrap = old.bootstrap
    live.goes_on()
    live.wait(lambda: live_group(bootstrap).state == "Stable")
    groups = groups_of(bootstrap)
    were, had = descriptions(bootstrap, groups), offsets(bootstrap, groups)
    assignments = [each.has for each in live.members]
    end(old, ending)
    new.start()
    # Describing waits for coordinators that load; Kafka's list leaves out what they have.
    are, have = descriptions(bootstrap, groups), offsets(bootstrap, groups)
    assert groups_of(bootstrap) == groups
    stable = without_epochs(were.pop(LIVE))
    del are[LIVE]
    assert are == were
    for place, before in had.pop(LIVE).items():
        assert have[LIVE][place].offset >= before.offset
    del have[LIVE]
    assert have == had
    live.goes_on()
    live.wait(lambda: without_epochs(live_group(bootstrap)) == stable)
    assert [each.has for each in live.members] == assignments


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_there_and_back(node: KafkaNode, ending: str) -> None:
    node.start()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    broker = BrokerProcess(node.directory, SETTINGS)
    broker.port = node.port
    bootstrap = node.bootstrap
    try:
        with ExitStack() as stack:
            live = LiveGroup(stack, bootstrap)
            leave_groups_behind(bootstrap, "kafka")
            hand_over(live, node, broker, ending)
            for member in live.members[:3]:
                live.join(OursByHeartbeats)
                member.stop()
                live.wait(live.is_divided)
            live.join(PatientLibrdkafka)
            leave_groups_behind(bootstrap, "millstream")
            hand_over(live, broker, node, ending)
            live.join(LibrdkafkaByHeartbeats)
            for old_writer in ("kafka", "millstream"):
                leave_groups_behind(bootstrap, old_writer)
            live.source.stop()
            assert len(live.source.producer) == 0
            everything = {(p, o) for p in range(PARTITIONS) for o in range(live.source.written)}
            live.wait(lambda: live.seen() >= everything)
            assert live.seen() == everything
            ends = [live.source.written] * PARTITIONS
            live.wait(lambda: committed(bootstrap, LIVE, TOPIC, PARTITIONS) == ends)
            assert [each.twice for each in live.members] == [[]] * len(live.members)
    finally:
        broker.kill()
