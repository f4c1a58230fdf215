"""franz-go does its ordinary work: it writes, transacts, reads in groups of all kinds."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.go.program import BUILD_TIMEOUT_S, TIMEOUT_S, GoProgram, built
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, Producer, TopicPartition
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic

HERE = Path(__file__).parent
PARTITIONS = 3

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,  # builds the Go program
    pytest.mark.timeout(BUILD_TIMEOUT_S + TIMEOUT_S),
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on the path"),
]


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory) -> GoProgram:
    """The program of ``main.go``."""
    return built(HERE, tmp_path_factory.mktemp("franz-go"))


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    return create(broker, new_topic())


def create(broker: BrokerProcess, name: str) -> str:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=PARTITIONS)]).get_all()
    return name


def fill(broker: BrokerProcess, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=200) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def values(broker: BrokerProcess, topic: str, *, committed: bool = True) -> Counter[str]:
    """Return what a reader of ours gets up to the end of all partitions."""
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap,
        isolation_level="read_committed" if committed else "read_uncommitted",
    ) as consumer:
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        found: Counter[str] = Counter()

        def is_read() -> bool:
            found.update((each.value or b"").decode() for each in consumer.poll(0.5))
            return all(consumer.position(place) >= ends[place] for place in places)

        wait_until(is_read, "the end of the topic")
    return found


def test_an_idempotent_producer(franz_go: GoProgram, broker: BrokerProcess, topic: str) -> None:
    lines = franz_go.run(
        "produce", broker, topic=topic, count=3_000, prefix="v", partitions=PARTITIONS
    )
    assert Counter(line[3] for line in lines) == Counter(f"v{number}" for number in range(3_000))
    assert {line[0] for line in lines} == {"acknowledged"}
    assert values(broker, topic) == Counter(f"v{number}" for number in range(3_000))


def test_transactions(franz_go: GoProgram, broker: BrokerProcess, topic: str) -> None:
    """Every third one is aborted; franz-go's own committed reader and ours see the others."""
    lines = franz_go.run(
        "transact", broker, topic=topic, count=600, size=20, id=topic, partitions=PARTITIONS
    )
    ended = Counter(line[0] for line in lines)
    assert ended == {"committed": 20, "aborted": 10}
    good = Counter(
        f"committed-{number}"
        for begin in range(0, 600, 20)
        if begin // 20 % 3 != 2
        for number in range(begin, begin + 20)
    )
    assert values(broker, topic) == good
    assert sum(values(broker, topic, committed=False).values()) == 600
    read = franz_go.run(
        "consume",
        broker,
        topic=topic,
        group=topic,
        count=len(good),
        isolation="committed",
        protocol="classic",
    )
    assert Counter(line[3] for line in read) == good


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_members_of_a_group(
    franz_go: GoProgram, broker: BrokerProcess, topic: str, protocol: str
) -> None:
    """One reads a part and leaves, the next goes on: nothing is lost and nothing comes twice."""
    fill(broker, topic, 900)
    common = {"topic": topic, "group": topic, "protocol": protocol, "isolation": "committed"}
    first = franz_go.run("consume", broker, count=300, **common)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.describe_groups([topic])[topic].get().type == protocol
    rest = franz_go.run("consume", broker, count=900 - len(first), **common)
    assert len(first) >= 300
    read = Counter(line[3] for line in [*first, *rest])
    assert read == Counter(str(number) for number in range(900))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_in_one_group_with_our_member(
    franz_go: GoProgram, broker: BrokerProcess, topic: str, protocol: str
) -> None:
    """The coordinator, or the leader, divides the partitions among both."""
    settings = {"group_protocol": "consumer", "group_remote_assignor": "range"}
    if protocol == "classic":
        settings = {"partition_assignment_strategy": "range"}
    common = {"topic": topic, "group": topic, "protocol": protocol, "isolation": "committed"}
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,  # type: ignore[arg-type]
    ) as ours:
        ours.subscribe([topic])
        wait_until(lambda: bool(ours.poll(0.1) or ours.assignment()), "our member's partitions")
        # It ends when it has read its part, which are one or two of the three partitions.
        process = franz_go.start("consume", broker, count=300, **common)
        try:
            wait_until(
                lambda: bool(ours.poll(0.1)) or 0 < len(ours.assignment()) < PARTITIONS,
                "both to have partitions",
            )
            mine = {each.partition for each in ours.assignment()}
            fill(broker, topic, 900)
            theirs = franz_go.finish(process)
        finally:
            process.kill()
        found: Counter[str] = Counter()

        def is_read() -> bool:
            for each in ours.poll(0.5):
                found[(each.value or b"").decode()] += 1
            return found.keys() | {line[3] for line in theirs} == set(map(str, range(900)))

        wait_until(is_read, "everything")
    assert theirs
    assert {int(line[1]) for line in theirs}.isdisjoint(mine)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_copy_transform_write(
    franz_go: GoProgram,
    broker: BrokerProcess,
    topic: str,
    new_topic: Callable[[], str],
    protocol: str,
) -> None:
    """Its transactional session, with aborts, copies each record once."""
    fill(broker, topic, 600)
    to = create(broker, new_topic())
    franz_go.run(
        "copy",
        broker,
        topic=topic,
        to=to,
        group=topic,
        id=topic,
        count=600,
        protocol=protocol,
        isolation="committed",
    )
    assert values(broker, to) == Counter(f"copy-{number}" for number in range(600))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        offsets = admin.list_group_offsets([topic])[topic].get()
    share = 600 // PARTITIONS
    assert [each.offset for each in offsets.values()] == [share] * PARTITIONS


def test_a_share_group(franz_go: GoProgram, broker: BrokerProcess, topic: str) -> None:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        change = Change("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({Resource(ResourceType.GROUP, topic): [change]}).get_all()
    fill(broker, topic, 300)
    lines = franz_go.run("share", broker, topic=topic, group=topic, count=300)
    by_word = {
        word: {(int(line[1]), int(line[2])) for line in lines if line[0] == word}
        for word in ("accepted", "released", "rejected")
    }
    again = {number for number in range(300) if number % 10 == 3}
    assert by_word["released"] == {(number, 1) for number in again}
    assert by_word["rejected"] == {(number, 1) for number in range(300) if number % 10 == 7}
    assert by_word["accepted"] == {
        (number, 2 if number in again else 1) for number in range(300) if number % 10 != 7
    }
    assert len(lines) == 330
