"""Our share consumer on Apache Kafka, and beside its own share consumer in one group."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.interop.kafka_cluster import JavaTool, KafkaNode, kafka_jars, small_kafka_node
from tests.system.share_story import ten_members_of_which_three_die

from millstream.client import AcknowledgeType, Admin, Producer, ShareConsumer, TopicPartition, aio
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic
from millstream.client.core.share.errors import AcknowledgeFailedError
from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

_NUMBERS = itertools.count(1)
LOCK_MS = 2_000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(LOCK_MS),
        "group.share.min.heartbeat.interval.ms": "500",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.min.session.timeout.ms": "3000",
        "group.share.session.timeout.ms": "5000",
    }
    node = small_kafka_node(tmp_path_factory.mktemp("kafka"), settings)
    node.start()
    yield node
    node.stop()


@pytest.fixture
def group(kafka: KafkaNode) -> str:
    """A group that reads from the beginning."""
    name = f"share-{next(_NUMBERS)}"
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        resource = Resource(ResourceType.GROUP, name)
        change = Change("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({resource: [change]}).get_all()
    return name


@pytest.fixture
def topic(kafka: KafkaNode) -> Callable[[int, int], str]:
    """Return a function that makes a topic with partitions and records."""

    def make(partitions: int, count: int) -> str:
        name = f"work-{next(_NUMBERS)}"
        with Admin(bootstrap_servers=kafka.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions=partitions)]).get_all()
        produce(kafka, name, count)
        return name

    return make


def produce(kafka: KafkaNode, name: str, count: int, first: int = 0) -> None:
    # Small batches: whole batches are acquired, and are to go to several members.
    with Producer(bootstrap_servers=kafka.bootstrap, batch_size=300) as producer:
        for number in range(first, first + count):
            producer.send(name, f"{number}".encode())


def consumer_of(kafka: KafkaNode, group: str, topic: str, **settings: object) -> ShareConsumer:  # type: ignore[type-arg]
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        bootstrap_servers=kafka.bootstrap, group_id=group, **settings
    )
    consumer.subscribe(topic)
    return consumer


def drain(consumer: ShareConsumer[bytes, bytes], count: int, limit_s: float = 60) -> Counter[int]:
    """Poll until so many records came."""
    seen: Counter[int] = Counter()
    end = time.monotonic() + limit_s
    while sum(seen.values()) < count:
        assert time.monotonic() < end, f"only {seen}"
        for record in consumer.poll(1):
            assert record.value is not None
            seen[int(record.value)] += 1
    return seen


def test_implicit_acknowledgement(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str]
) -> None:
    name = topic(3, 2_000)
    with consumer_of(kafka, group, name) as consumer:
        assert drain(consumer, 2_000) == Counter(range(2_000))
        consumer.commit()
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
    produce(kafka, name, 10, 5_000)
    with consumer_of(kafka, group, name) as consumer:
        assert drain(consumer, 10) == Counter(range(5_000, 5_010))


def test_explicit_acknowledgement_of_every_type(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str]
) -> None:
    name = topic(1, 40)
    told: list[tuple[frozenset[int], Exception | None]] = []
    with consumer_of(kafka, group, name, share_acknowledgement_mode="explicit") as consumer:
        consumer.set_acknowledgement_callback(
            lambda offsets, error: told.append((offsets[TopicPartition(name, 0)], error))
        )
        released = rejected = accepted = 0
        end = time.monotonic() + 60
        while accepted + rejected < 40 and time.monotonic() < end:
            for record in consumer.poll(1):
                if record.offset % 4 == 0 and record.delivery_count == 1:
                    consumer.acknowledge(record, AcknowledgeType.RELEASE)
                    released += 1
                elif record.offset % 4 == 1:
                    consumer.acknowledge(record, AcknowledgeType.REJECT)
                    rejected += 1
                else:
                    consumer.acknowledge(record)
                    accepted += 1
        consumer.commit()
    assert (released, rejected, accepted) == (10, 10, 30)
    assert {error for _, error in told} == {None}
    assert sum(len(offsets) for offsets, _ in told) == 50


def test_renewed_records_stay_with_their_consumer(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str]
) -> None:
    name = topic(1, 3)
    explicit = {"share_acknowledgement_mode": "explicit"}
    with (
        consumer_of(kafka, group, name, **explicit) as consumer,
        consumer_of(kafka, group, name, **explicit) as other,
    ):
        records = []
        end = time.monotonic() + 30
        while not records and time.monotonic() < end:
            records = consumer.poll(1)
        begun = time.monotonic()
        offsets = [record.offset for record in records]
        while time.monotonic() < begun + 2.5 * LOCK_MS / 1000:
            for record in records:
                consumer.acknowledge(record, AcknowledgeType.RENEW)
            time.sleep(0.3)
            records = consumer.poll(5)
            assert [record.offset for record in records] == offsets
            assert {record.delivery_count for record in records} == {1}
            assert other.poll(0) == []
        for record in records:
            consumer.acknowledge(record)
        consumer.commit()


def test_a_lock_that_ends_gives_the_record_to_another(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str]
) -> None:
    name = topic(1, 5)
    with consumer_of(kafka, group, name) as slow, consumer_of(kafka, group, name) as other:
        assert drain(slow, 5) == Counter(range(5))
        time.sleep(LOCK_MS / 1000)
        assert drain(other, 5) == Counter(range(5))
        with pytest.raises(AcknowledgeFailedError):
            slow.commit()
        other.commit()


def test_close_gives_records_back_at_once(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str]
) -> None:
    name = topic(1, 5)
    with consumer_of(kafka, group, name) as first:
        for record in first:
            if record.offset == 2:
                break
    with consumer_of(kafka, group, name) as second:
        assert drain(second, 3) == Counter([2, 3, 4])


def test_record_limit(kafka: KafkaNode, group: str, topic: Callable[[int, int], str]) -> None:
    name = topic(2, 50)
    with consumer_of(
        kafka, group, name, share_acquire_mode="record_limit", max_poll_records=7
    ) as consumer:
        seen: Counter[int] = Counter()
        end = time.monotonic() + 60
        while len(seen) < 50 and time.monotonic() < end:
            records = consumer.poll(1)
            assert len(records) <= 7
            seen.update(int(record.value or b"-1") for record in records)
        consumer.commit()
    assert seen == Counter(range(50))


def test_under_asyncio(kafka: KafkaNode, group: str, topic: Callable[[int, int], str]) -> None:
    name = topic(2, 300)

    async def run() -> Counter[int]:
        seen: Counter[int] = Counter()

        async def work() -> None:
            async with aio.ShareConsumer(
                bootstrap_servers=kafka.bootstrap, group_id=group, max_poll_records=20
            ) as consumer:
                await consumer.subscribe([name])
                while sum(seen.values()) < 300:
                    for record in await consumer.poll(0.5):
                        seen[int(record.value or b"-1")] += 1
                    await consumer.commit()

        await asyncio.wait_for(asyncio.gather(*(work() for _ in range(3))), 60)
        return seen

    assert asyncio.run(run()) == Counter(range(300))


def test_one_group_with_javas_share_consumer(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str]
) -> None:
    name = topic(2, 0)
    command = JavaTool(kafka_jars()).command(
        "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
        *("--bootstrap-server", kafka.bootstrap, "--topic", name, "--group", group),
    )
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as java,
        consumer_of(kafka, group, name, max_poll_records=10) as ours,
    ):
        try:
            await_members(kafka, group, 2)
            produce(kafka, name, 2_000)
            seen: set[int] = set()
            end = time.monotonic() + 60
            quiet = 0
            while quiet < 5 and time.monotonic() < end:
                records = ours.poll(1)
                quiet = 0 if records else quiet + 1
                seen |= {int(record.value or b"-1") for record in records}
                time.sleep(0.01)
        finally:
            java.terminate()
        assert java.stdout is not None
        theirs = {int(line) for line in java.stdout.read().split()}
    assert seen | theirs == set(range(2_000))
    assert theirs
    assert seen


def await_members(kafka: KafkaNode, group: str, count: int) -> None:
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            outcome = admin.describe_share_groups([group])[group]
            if outcome.error is None and len(outcome.get().members) == count:
                assert outcome.get().state == "Stable"
                return
            time.sleep(0.2)
    raise AssertionError(f"not {count} members: {outcome}")


def test_administration(kafka: KafkaNode, group: str, topic: Callable[[int, int], str]) -> None:
    name = topic(1, 20)
    place = TopicPartition(name, 0)
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        with consumer_of(kafka, group, name) as consumer:
            drain(consumer, 20)
            consumer.commit()
            (member,) = admin.describe_share_groups([group])[group].get().members
            assert member.member_id == consumer.member_id
            assert member.partitions == (place,)
            with pytest.raises(BrokerError) as caught:
                admin.alter_share_group_offsets(group, {place: 3}).get_all()
            assert caught.value.error is ErrorCode.NON_EMPTY_GROUP
        listed = admin.list_groups(types=["share"])
        assert group in {each.group for each in listed}
        offset = admin.list_share_group_offsets([group])[group].get()[place]
        # The start that is on record may be behind: the end of the delivered records is in states.
        assert offset.lag == 0
        admin.alter_share_group_offsets(group, {place: 15}).get_all()
        with consumer_of(kafka, group, name) as consumer:
            assert drain(consumer, 5) == Counter(range(15, 20))
        admin.delete_share_group_offsets(group, [name]).get_all()
        assert admin.list_share_group_offsets([group])[group].get() == {}
        admin.delete_groups([group]).get_all()
        assert group not in {each.group for each in admin.list_groups()}


def test_ten_members_of_which_three_die(
    kafka: KafkaNode, group: str, topic: Callable[[int, int], str], tmp_path: Path
) -> None:
    name = topic(3, 0)
    ten_members_of_which_three_die(lambda: kafka.bootstrap, tmp_path, group, name)


def test_the_command_line(kafka: KafkaNode, group: str, topic: Callable[[int, int], str]) -> None:
    name = topic(1, 20)

    def run(*arguments: str) -> str:
        command = [
            str(Path(sys.executable).with_name("millstream")),
            *arguments,
            "-b",
            kafka.bootstrap,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = run("consume", name, "--share", "-G", group, "-c", "5")
    assert first.split() == ["0", "1", "2", "3", "4"]
    rest = run("consume", name, "--share", "-G", group, "-c", "15")
    assert rest.split() == [str(number) for number in range(5, 20)]
    assert "share" in run("group", "list").lower()
    shown = json.loads(run("group", "describe", group, "--json"))[0]
    assert (shown["type"], shown["lag"], shown["partitions"][0]["end"]) == ("share", 0, 20)
    rows = [line.split("\t") for line in run("group", "describe", group).splitlines()]
    assert {row[-1] for row in rows} == {"0"}
    run("group", "reset-offsets", group, "--to", "earliest", "--execute")
    assert run("consume", name, "--share", "-G", group, "-c", "1").split() == ["0"]
    run("group", "delete", group)
