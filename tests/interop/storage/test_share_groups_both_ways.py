"""Share groups (KIP-932) of Apache Kafka go on here, and ours there, with a member that lives on.

One directory and one address are served by Kafka, by a broker of ours, and by Kafka again. Both
times the broker ends while records are accepted, rejected, released, archived, and on their way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from bench.peers.kafka import KafkaNode
from tests.broker_process import BrokerProcess
from tests.interop.clients.mixed_group import wait_for
from tests.interop.kafka_cluster import KafkaUnavailableError, small_kafka_node

from millstream.client import AcknowledgeType, Admin, Producer, ShareConsumer, ShareRecord
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.share_groups import ShareGroupDescription
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.share.errors import AcknowledgeFailedError
from millstream.coordinator.share.records import SHARE_SNAPSHOT, SHARE_UPDATE, decode_record
from millstream.model.topic import TopicPartition
from millstream.records.batch import iter_batches
from millstream.records.record import read_records

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC: Final = "work"
PARTITIONS: Final = 2
DELIVERY_LIMIT: Final = 6
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
    # So that both snapshots and updates are what a start has to read.
    "share.coordinator.snapshot.update.records.per.snapshot": "4",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
}
GROUP_SETTINGS: Final = {
    "share.auto.offset.reset": "earliest",
    "share.delivery.count.limit": str(DELIVERY_LIMIT),
}

Broker = KafkaNode | BrokerProcess
Record = ShareRecord[bytes, bytes]


def configure(bootstrap: str, group: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        changes = [Change(name, value) for name, value in GROUP_SETTINGS.items()]
        admin.incremental_alter_configs({Resource(ResourceType.GROUP, group): changes}).get_all()


def configured(bootstrap: str, group: str) -> dict[str, str | None]:
    resource = Resource(ResourceType.GROUP, group)
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_configs([resource]).get_all()[resource]
    return {each.name: each.value for each in found if each.name in GROUP_SETTINGS}


def description(bootstrap: str, group: str) -> ShareGroupDescription:
    """Describe a group, but for its epochs: each broker has a hash of the topics of its own."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.describe_share_groups([group])[group].get()
    members = tuple(replace(each, member_epoch=0) for each in found.members)
    return replace(found, group_epoch=0, assignment_epoch=0, members=members)


def offsets(bootstrap: str, group: str) -> dict[TopicPartition, tuple[int, int]]:
    """Return the start offset of each partition and how much is left from there."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        found = admin.list_share_group_offsets([group])[group].get()
    return {place: (each.start_offset, each.lag) for place, each in found.items()}


def consumer_of(bootstrap: str, group: str) -> ShareConsumer[bytes, bytes]:
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        share_acknowledgement_mode="explicit",
        max_poll_records=7,
    )
    consumer.subscribe([TOPIC])
    return consumer


def stored_types(directory: Path) -> Counter[int]:
    """Count the records of share partitions' state by their type."""
    found: Counter[int] = Counter()
    for path in directory.glob("__share_group_state-*/*.log"):
        for batch in iter_batches(path.read_bytes()):
            for record in read_records(batch):
                assert record.key is not None
                decoded = decode_record(bytes(record.key), record.value and bytes(record.value))
                assert decoded is not None
                found[decoded.key_type] += 1
    return found


class Work:
    """Numbered records of one group: how often each will have been delivered when it comes next.

    ``kind_of`` says what becomes of a record that is delivered.
    """

    def __init__(
        self, bootstrap: str, group: str, kind_of: Callable[[Record], AcknowledgeType]
    ) -> None:
        self._bootstrap = bootstrap
        self._kind_of = kind_of
        self.group = group
        self.next_count: dict[int, int] = {}
        """By number; a record that is done with is not in it."""
        self._perhaps_one_more: set[int] = set()
        """What a consumer that closed may have acquired: that delivery counts."""
        self.done: Counter[str] = Counter()
        self.written = 0

    def produce(self, count: int) -> None:
        # Small batches: Kafka acquires whole ones.
        with Producer(bootstrap_servers=self._bootstrap, batch_size=200) as producer:
            for number in range(self.written, self.written + count):
                producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
        self.next_count.update((n, 1) for n in range(self.written, self.written + count))
        self.written += count

    def process(self, consumer: ShareConsumer[bytes, bytes], settled: int) -> list[Record]:
        """Acknowledge until so many more are done with, then half of another poll; return the other
        half, which stays acquired.
        """
        before = sum(self.done.values())
        while sum(self.done.values()) < before + settled:
            self.acknowledge(consumer, self.poll(consumer))
        records: list[Record] = []
        while len(records) < 2:
            self.acknowledge(consumer, records)
            records = self.poll(consumer)
        half = len(records) // 2
        self.acknowledge(consumer, records[:half])
        return records[half:]

    def poll(self, consumer: ShareConsumer[bytes, bytes]) -> list[Record]:
        """Return records; each comes for the time that it has to."""
        records: list[Record] = []

        def polled() -> bool:
            records.extend(consumer.poll(1))
            return bool(records)

        wait_for(polled, lambda: self.next_count)
        for record in records:
            number = number_of(record)
            if number in self._perhaps_one_more and record.delivery_count > self.next_count[number]:
                self.next_count[number] += 1
            assert record.delivery_count == self.next_count.get(number), record
        self._perhaps_one_more -= set(map(number_of, records))
        return records

    def closed(self) -> None:
        """Note that the group's consumer has left with what it had acquired."""
        self._perhaps_one_more = set(self.next_count)

    def acknowledge(
        self, consumer: ShareConsumer[bytes, bytes], records: list[Record]
    ) -> set[TopicPartition]:
        """Acknowledge records; return the partitions of which the broker did not take it."""
        for record in records:
            consumer.acknowledge(record, self._kind_of(record))
        failed: set[TopicPartition] = set()
        try:
            consumer.commit()
        except AcknowledgeFailedError as error:
            failed = set(error.errors)
        for record in records:
            number, kind = number_of(record), self._kind_of(record)
            if record.topic_partition in failed:
                continue
            if kind is AcknowledgeType.RELEASE and record.delivery_count < DELIVERY_LIMIT:
                self.next_count[number] += 1
            else:
                del self.next_count[number]
                self.done[kind.name] += 1
        return failed


def number_of(record: Record) -> int:
    assert record.value is not None
    return int(record.value)


def accept_or_reject(record: Record) -> AcknowledgeType:
    return AcknowledgeType.REJECT if number_of(record) % 6 == 1 else AcknowledgeType.ACCEPT


def every_kind(record: Record) -> AcknowledgeType:
    """Accept, reject, release once or twice before, or release until it is archived."""
    match number_of(record) % 6:
        case 1:
            return AcknowledgeType.REJECT
        case 2 if record.delivery_count < 2:
            return AcknowledgeType.RELEASE
        case 3 if record.delivery_count < 3:
            return AcknowledgeType.RELEASE
        case 4:
            return AcknowledgeType.RELEASE
        case _:
            return AcknowledgeType.ACCEPT


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


class Groups:
    """A group with a member that knows nothing of the brokers' turns, and one without members."""

    def __init__(self, stack: ExitStack, node: KafkaNode) -> None:
        self.bootstrap = node.bootstrap
        self._directory = node.log_dir
        self.live = Work(self.bootstrap, "live", every_kind)
        self.ended = Work(self.bootstrap, "ended", accept_or_reject)
        for group in (self.live, self.ended):
            configure(self.bootstrap, group.group)
        self.produce(200)
        self.member = stack.enter_context(consumer_of(self.bootstrap, "live"))
        self._held: list[Record] = []

    def produce(self, count: int) -> None:
        self.live.produce(count)
        self.ended.written = self.live.written
        self.ended.next_count.update(
            (n, 1) for n in range(self.live.written - count, self.live.written)
        )

    def work(self) -> None:
        assert self.live.acknowledge(self.member, self._held) == set()
        self._held = self.live.process(self.member, 60)
        with consumer_of(self.bootstrap, "ended") as consumer:
            self.ended.process(consumer, 40)
        self.ended.closed()

    def hand_over(self, old: Broker, new: Broker, ending: str) -> None:
        """End one broker, start the other one in its place: all is as it was."""
        groups = [self.live.group, self.ended.group]
        were = [description(self.bootstrap, each) for each in groups]
        had = [offsets(self.bootstrap, each) for each in groups]
        assert [len(each.members) for each in were] == [1, 0]
        end(old, ending)
        types = stored_types(self._directory)
        assert types[SHARE_SNAPSHOT] > 0
        assert types[SHARE_UPDATE] > 0
        new.start()
        assert [offsets(self.bootstrap, each) for each in groups] == had
        assert [configured(self.bootstrap, each) for each in groups] == [GROUP_SETTINGS] * 2
        assert description(self.bootstrap, "ended") == were[1]
        wait_for(lambda: description(self.bootstrap, "live") == were[0], lambda: were[0])
        # What was acquired at the old broker is not any more, so it is not done with.
        places = {each.topic_partition for each in self._held}
        assert self.live.acknowledge(self.member, self._held) == places
        self._held = []

    def finish(self) -> None:
        """Nothing is left to be delivered."""
        while self.live.next_count:
            self.live.acknowledge(self.member, self.live.poll(self.member))
        with consumer_of(self.bootstrap, "ended") as consumer:
            while self.ended.next_count:
                self.ended.acknowledge(consumer, self.ended.poll(consumer))
        for group in (self.live, self.ended):
            assert sum(group.done.values()) == group.written
            assert {lag for _, lag in offsets(self.bootstrap, group.group).values()} == {0}


@pytest.mark.parametrize("ending", ["stopped", "killed"])
def test_there_and_back(node: KafkaNode, ending: str) -> None:
    node.start()
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, partitions=PARTITIONS)]).get_all()
    broker = BrokerProcess(node.directory, SETTINGS)
    broker.port = node.port
    try:
        with ExitStack() as stack:
            groups = Groups(stack, node)
            groups.work()
            groups.hand_over(node, broker, ending)
            groups.work()
            groups.produce(200)
            groups.work()
            groups.hand_over(broker, node, ending)
            groups.finish()
    finally:
        broker.kill()
