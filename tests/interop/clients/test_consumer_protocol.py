"""The consumer protocol (KIP-848) on a broker of ours: our client and librdkafka, alone, together,
and beside classic members, while records keep coming.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess
from tests.interop.clients.heartbeat_stories import BROKER_SETTINGS, STORIES
from tests.interop.clients.mixed_group import (
    Librdkafka,
    LibrdkafkaByHeartbeats,
    Member,
    Ours,
    OursByHeartbeats,
    committed,
    wait_for,
)
from tests.interop.clients.test_our_consumer import PARTITIONS, Source, share_a_group, stopping

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def group_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), BROKER_SETTINGS)
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.long
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story(
    group_broker: BrokerProcess, new_topic: Callable[[], str], story: Callable[[str, str], None]
) -> None:
    story(group_broker.bootstrap, new_topic())


@pytest.mark.parametrize("assignor", ["uniform", "range"])
@pytest.mark.parametrize(
    "kinds",
    [
        [LibrdkafkaByHeartbeats] * 3,
        [OursByHeartbeats, LibrdkafkaByHeartbeats, OursByHeartbeats],
    ],
    ids=["librdkafka", "both"],
)
def test_a_group_by_heartbeats(
    group_broker: BrokerProcess,
    new_topic: Callable[[], str],
    assignor: str,
    kinds: list[type[Member]],
) -> None:
    share_a_group(group_broker.bootstrap, new_topic(), assignor, kinds)


@pytest.mark.parametrize(
    "kinds",
    [
        [Ours, OursByHeartbeats, Ours],
        [OursByHeartbeats, Ours, OursByHeartbeats],
        [Librdkafka, OursByHeartbeats, LibrdkafkaByHeartbeats],
        [LibrdkafkaByHeartbeats, Librdkafka, Librdkafka],
    ],
    ids=["upgrade", "downgrade", "librdkafka", "librdkafka-downgrade"],
)
def test_a_group_of_both_protocols(
    group_broker: BrokerProcess, new_topic: Callable[[], str], kinds: list[type[Member]]
) -> None:
    share_a_group(group_broker.bootstrap, new_topic(), "range", kinds)


@pytest.mark.long
@pytest.mark.parametrize("pair", [(Librdkafka, LibrdkafkaByHeartbeats), (Ours, OursByHeartbeats)])
def test_a_rolling_upgrade_and_back_under_load(
    group_broker: BrokerProcess,
    new_topic: Callable[[], str],
    pair: tuple[type[Member], type[Member]],
) -> None:
    """Members are replaced one by one: every record is read, and somebody reads all the time."""
    classic, modern = pair
    bootstrap, topic = group_broker.bootstrap, new_topic()
    group = f"group-{topic}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    source = Source(bootstrap, topic)
    source.start()
    all_members: list[Member] = []

    def running() -> list[Member]:
        return [each for each in all_members if each.is_alive()]

    def divided() -> bool:
        shares = [each.has for each in running()]
        return (
            all(shares)
            and sum(map(len, shares)) == PARTITIONS
            and frozenset().union(*shares) == frozenset(range(PARTITIONS))
        )

    def story() -> object:
        return [(each.name, sorted(each.has), each.failure) for each in all_members]

    def seen() -> set[tuple[int, int]]:
        return set().union(*(each.seen for each in all_members))

    def kind_of_group() -> tuple[object, object]:
        found = admin.list_consumer_groups().result(30).valid
        (listing,) = [each for each in found if each.group_id == group]
        return listing.type, listing.state

    with ExitStack() as stack:
        stack.callback(source.stop)

        def start(kind: type[Member]) -> None:
            member = stack.enter_context(stopping(kind(bootstrap, group, topic, "range")))
            all_members.append(member)
            member.start()

        for _ in range(3):
            start(classic)
        wait_for(divided, story)
        assert kind_of_group()[0] == ConsumerGroupType.CLASSIC
        for replacement, expected in (
            (modern, ConsumerGroupType.CONSUMER),
            (classic, ConsumerGroupType.CLASSIC),
        ):
            for old in running():
                start(replacement)
                before = len(seen())
                old.stop()
                wait_for(divided, story)
                wait_for(lambda count=before: len(seen()) > count, story)  # type: ignore[misc]
            stable = (expected, ConsumerGroupState.STABLE)
            wait_for(lambda want=stable: kind_of_group() == want, story)  # type: ignore[misc]
        source.stop()
        expected_records = {(p, o) for p in range(PARTITIONS) for o in range(source.written)}
        wait_for(lambda: seen() == expected_records, story)
        ends = [source.written] * PARTITIONS
        wait_for(lambda: committed(bootstrap, group, topic, PARTITIONS) == ends, story)


def test_a_group_goes_on_after_its_broker_was_killed(
    tmp_path_factory: pytest.TempPathFactory, new_topic: Callable[[], str]
) -> None:
    """The members keep their partitions: the coordinator knows them from its log."""
    broker = BrokerProcess(tmp_path_factory.mktemp("killed"), BROKER_SETTINGS)
    broker.start()
    try:
        bootstrap, topic = broker.bootstrap, new_topic()
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
        with ExitStack() as stack:
            members = [
                stack.enter_context(stopping(kind(bootstrap, "g", topic, "uniform")))
                for kind in (LibrdkafkaByHeartbeats, OursByHeartbeats)
            ]
            for member in members:
                member.start()
            wait_for(lambda: all(len(each.has) == 3 for each in members), lambda: members)
            before = [each.has for each in members]
            broker.kill()
            broker.start()
            time.sleep(2)
            source = Source(bootstrap, topic)
            source.start()
            stack.callback(source.stop)
            wait_for(lambda: all(each.seen for each in members), lambda: members)
            wait_for(lambda: [each.has for each in members] == before, lambda: members)
    finally:
        broker.stop()
