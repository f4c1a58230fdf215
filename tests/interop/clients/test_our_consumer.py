"""Our consumer beside other clients: it reads what they write, and shares groups with them."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.clients.mixed_group import (
    KafkaPython,
    Librdkafka,
    Member,
    Ours,
    committed,
    wait_for,
)

from millstream.client import Consumer, ConsumerRecord, TopicPartition, aio

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

COUNT = 200
PARTITIONS = 6

Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]


def rows() -> list[Row]:
    """Return what to write: nulls, empties, headers of all kinds, times."""
    return [
        (
            None if number % 3 == 0 else b"" if number % 3 == 1 else b"k%d" % number,
            None if number % 5 == 0 else b"" if number % 5 == 1 else b"v" * number,
            () if number % 2 else (("h", b"%d" % number), ("none", None), ("h", b"")),
            1_700_000_000_000 + number,
        )
        for number in range(COUNT)
    ]


def as_row(record: ConsumerRecord[bytes, bytes]) -> Row:
    return record.key, record.value, record.headers, record.timestamp


def read_blocking(bootstrap: str, topic: str) -> list[Row]:
    with Consumer[bytes, bytes](bootstrap_servers=bootstrap) as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        found: list[Row] = []
        deadline = time.monotonic() + 30
        while len(found) < COUNT and time.monotonic() < deadline:
            found += [as_row(record) for record in consumer.poll(1)]
        return found


def read_asyncio(bootstrap: str, topic: str) -> list[Row]:
    async def read() -> list[Row]:
        found: list[Row] = []
        async with aio.Consumer[bytes, bytes](bootstrap_servers=bootstrap) as consumer:
            place = TopicPartition(topic, 0)
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            async for record in consumer:
                found.append(as_row(record))
                if len(found) == COUNT:
                    break
        return found

    return asyncio.run(asyncio.wait_for(read(), 30))


@pytest.mark.parametrize("read", [read_blocking, read_asyncio])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_librdkafka_writes(
    broker: BrokerProcess,
    new_topic: Callable[[], str],
    codec: str,
    read: Callable[[str, str], list[Row]],
) -> None:
    topic = new_topic()
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5}
    )
    for key, value, headers, timestamp in rows():
        producer.produce(
            topic, value, key, partition=0, timestamp=timestamp, headers=list(headers) or None
        )
    assert producer.flush(30) == 0
    assert read(broker.bootstrap, topic) == rows()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_what_kafka_python_writes(
    broker: BrokerProcess, new_topic: Callable[[], str], codec: str | None
) -> None:
    topic = new_topic()
    # It takes no null in headers, and a null value with a key only.
    written: list[Row] = [
        (key or b"k", value, tuple(each for each in headers if each[1] is not None), timestamp)
        for key, value, headers, timestamp in rows()
    ]
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=5
    )
    for key, value, headers, timestamp in written:
        producer.send(topic, value, key, partition=0, timestamp_ms=timestamp, headers=list(headers))
    producer.flush(30)
    producer.close()
    assert read_blocking(broker.bootstrap, topic) == written


# --- groups --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path_factory.mktemp("groups"), settings) as process:
        yield process


class Source(threading.Thread):
    """Writes numbers to all partitions until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self.topic = topic
        self.written = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.01):
            for partition in range(PARTITIONS):
                self.producer.produce(self.topic, b"%d" % self.written, partition=partition)
            self.written += 1

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        self.producer.flush(30)


@contextmanager
def stopping(member: Member) -> Iterator[Member]:
    try:
        yield member
    finally:
        if member.is_alive():
            member.stop()


def share_a_group(bootstrap: str, topic: str, strategy: str, kinds: list[type[Member]]) -> None:
    """Members come one by one, then the first goes: everything is read, by somebody."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    source = Source(bootstrap, topic)
    source.start()
    everything = frozenset(range(PARTITIONS))
    members: list[Member] = []

    def divided() -> bool:
        shares = [each.has for each in members if each.is_alive()]
        alive = all(shares) and sum(map(len, shares)) == PARTITIONS
        return alive and frozenset().union(*shares) == everything

    def story() -> object:
        return [(each.name, sorted(each.has), each.failure) for each in members]

    with ExitStack() as stack:
        stack.callback(source.stop)
        for kind in kinds:
            member = stack.enter_context(
                stopping(kind(bootstrap, f"group-{topic}", topic, strategy))
            )
            members.append(member)
            member.start()
            wait_for(divided, story)
        members[0].stop()
        wait_for(divided, story)
        source.stop()
        assert len(source.producer) == 0
        expected = {(p, o) for p in everything for o in range(source.written)}
        wait_for(
            lambda: set[tuple[int, int]]().union(*(m.seen for m in members)) == expected, story
        )
        ends = [source.written] * PARTITIONS
        wait_for(lambda: committed(bootstrap, f"group-{topic}", topic, PARTITIONS) == ends, story)
        for each in members[1:]:
            each.stop()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("first", [Ours, Librdkafka, KafkaPython])
@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
def test_an_eager_group_of_three_clients(
    group_broker: BrokerProcess, new_topic: Callable[[], str], strategy: str, first: type[Member]
) -> None:
    others = [kind for kind in (Ours, Librdkafka, KafkaPython) if kind is not first]
    share_a_group(group_broker.bootstrap, new_topic(), strategy, [first, *others])


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds", [[Ours, Librdkafka, Ours], [Librdkafka, Ours, Librdkafka]], ids=["ours", "librdkafka"]
)
def test_a_cooperative_group_with_librdkafka(
    group_broker: BrokerProcess, new_topic: Callable[[], str], kinds: list[type[Member]]
) -> None:
    share_a_group(group_broker.bootstrap, new_topic(), "cooperative-sticky", kinds)


def test_a_group_of_one_other_client(
    group_broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    share_a_group(group_broker.bootstrap, new_topic(), "range", [Librdkafka, Ours])
