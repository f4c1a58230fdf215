"""What a member of the consumer protocol meets (KIP-848), on any broker that speaks it.

Each story is run against brokers of Millstream and against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.interop.clients.mixed_group import wait_for

from millstream.client import Consumer, Producer, SubscriptionPattern, TopicPartition, aio
from millstream.client.errors import BrokerError
from millstream.model.errors import ErrorCode

PARTITIONS: Final = 4
RECORDS: Final = 100

BROKER_SETTINGS: Final = {
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.session.timeout.ms": "5000",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
"""So that a story takes seconds."""


def create(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def fill(bootstrap: str, topic: str, partitions: int = PARTITIONS, count: int = RECORDS) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            for partition in range(partitions):
                producer.send(topic, b"%d" % number, partition=partition)


class Listening:
    """A consumer with a listener that notes what it hears."""

    def __init__(self, bootstrap: str, group: str, **settings: object) -> None:
        chosen: dict[str, object] = {
            "group_protocol": "consumer",
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 200,
            **settings,
        }
        self.consumer = Consumer[bytes, bytes](
            bootstrap_servers=bootstrap, group_id=group, **chosen
        )
        self.events: list[str] = []
        self.seen: set[tuple[TopicPartition, int]] = set()

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            self.events.append("assigned")

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append("revoked")

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.events.append("lost")

    def poll(self, timeout: float = 0.05) -> None:
        records = self.consumer.poll(timeout)
        self.seen |= {(each.topic_partition, each.offset) for each in records}

    @property
    def has(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment()


@contextmanager
def listening(
    bootstrap: str, group: str, topic: str | None = None, **settings: object
) -> Iterator[Listening]:
    """A member that reads ``topic``."""
    member = Listening(bootstrap, group, **settings)
    with member.consumer:
        if topic is not None:
            member.consumer.subscribe([topic], listener=member)
        yield member


def until(members: list[Listening], condition: Callable[[], bool]) -> None:
    """Let the members poll until the condition holds."""

    def poll() -> bool:
        for each in members:
            each.poll()
        return condition()

    wait_for(poll, lambda: [(sorted(each.has), each.events) for each in members])


def everything(topic: str, count: int = RECORDS) -> set[tuple[TopicPartition, int]]:
    return {
        (TopicPartition(topic, partition), offset)
        for partition in range(PARTITIONS)
        for offset in range(count)
    }


def a_member_comes_and_goes(bootstrap: str, topic: str) -> None:
    """Partitions are shared, and nothing is read twice when positions are committed."""
    create(bootstrap, topic)
    fill(bootstrap, topic)
    group = f"g-{topic}"
    with listening(bootstrap, group, topic) as first:
        until([first], lambda: first.seen == everything(topic))
        assert first.consumer.group_metadata().generation_id > 0
        with listening(bootstrap, group, topic) as second:
            until([first, second], lambda: len(first.has) == len(second.has) == 2)
            assert not first.has & second.has
            fill(bootstrap, topic)
            both = [first, second]
            until(both, lambda: first.seen | second.seen == everything(topic, 2 * RECORDS))
            assert not any(offset < RECORDS for _, offset in second.seen), "what was committed"
            until(both, lambda: len(first.has) == 2)
        until([first], lambda: len(first.has) == PARTITIONS)
    assert first.events == ["assigned", "revoked", "assigned", "revoked"]


def topics_are_matched_by_the_coordinator(bootstrap: str, topic: str) -> None:
    """A topic that comes later is read too; another one is not."""
    create(bootstrap, f"{topic}-one")
    create(bootstrap, f"other-{topic}")
    fill(bootstrap, f"{topic}-one")
    with listening(bootstrap, f"g-{topic}") as member:
        pattern = SubscriptionPattern(f"{topic}-(one|two)")
        member.consumer.subscribe(pattern, listener=member)
        until([member], lambda: member.seen == everything(f"{topic}-one"))
        create(bootstrap, f"{topic}-two")
        fill(bootstrap, f"{topic}-two")
        both = everything(f"{topic}-one") | everything(f"{topic}-two")
        until([member], lambda: member.seen == both)
        assert member.consumer.subscription() == {f"{topic}-one", f"{topic}-two"}
        member.consumer.subscribe([f"{topic}-two"], listener=member)
        until([member], lambda: {each.topic for each in member.has} == {f"{topic}-two"})


def an_expression_that_is_none(bootstrap: str, topic: str) -> None:
    """The coordinator refuses it, and the consumer says so."""
    with listening(bootstrap, f"g-{topic}") as member:
        member.consumer.subscribe(SubscriptionPattern("(un"), listener=member)
        with pytest.raises(BrokerError) as raised:
            until([member], lambda: False)
        assert raised.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION


def a_static_member_comes_back(bootstrap: str, topic: str) -> None:
    """It gets the partitions it had, and the other member hears of nothing."""
    create(bootstrap, topic)
    group = f"g-{topic}"
    with listening(bootstrap, group, topic, group_instance_id="two") as second:
        with listening(bootstrap, group, topic, group_instance_id="one") as first:
            until([first, second], lambda: len(first.has) == len(second.has) == 2)
            had = first.has
        heard = list(second.events)
        with listening(bootstrap, group, topic, group_instance_id="one") as again:
            until([again, second], lambda: len(again.has) == 2)
            assert again.has == had
            assert second.events == heard
            third = Listening(bootstrap, group, group_instance_id="one")
            third.consumer.subscribe([topic], listener=third)
            with third.consumer, pytest.raises(BrokerError) as raised:
                until([third, again, second], lambda: False)
            assert raised.value.error is ErrorCode.UNRELEASED_INSTANCE_ID


def who_polls_too_seldom_loses_its_partitions(bootstrap: str, topic: str) -> None:
    """Another member has them soon; the first one hears it at its next poll, and comes back."""
    create(bootstrap, topic)
    group = f"g-{topic}"
    with (
        listening(bootstrap, group, topic, max_poll_interval_ms=3_000) as slow,
        listening(bootstrap, group, topic) as other,
    ):
        until([slow, other], lambda: len(slow.has) == len(other.has) == 2)
        until([other], lambda: len(other.has) == PARTITIONS)
        assert "lost" not in slow.events
        until([slow, other], lambda: len(slow.has) == len(other.has) == 2)
        assert slow.events[-2:] == ["lost", "assigned"]


def an_unknown_assignor_is_refused(bootstrap: str, topic: str) -> None:
    create(bootstrap, topic)
    with listening(bootstrap, f"g-{topic}", topic, group_remote_assignor="none-such") as member:
        with pytest.raises(BrokerError) as raised:
            until([member], lambda: False)
        assert raised.value.error is ErrorCode.UNSUPPORTED_ASSIGNOR


def partitions_and_topics_that_come_later(bootstrap: str, topic: str) -> None:
    """More partitions of a topic, and a topic that is deleted and made again, are read."""
    create(bootstrap, topic, 2)
    fill(bootstrap, topic, 2, 10)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    with listening(
        bootstrap,
        f"g-{topic}",
        topic,
        metadata_max_age_ms=500,
        allow_auto_create_topics=False,
    ) as member:
        until([member], lambda: len(member.seen) == 20)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        until([member], lambda: len(member.has) == 3)
        fill(bootstrap, topic, 3, 10)
        until([member], lambda: len(member.seen) == 50)
        admin.delete_topics([topic])[topic].result(30)
        until([member], lambda: not member.has)
        member.seen.clear()
        time.sleep(0.5)
        create(bootstrap, topic, 1)
        fill(bootstrap, topic, 1, 10)
        until([member], lambda: len(member.seen) == 10)


def with_asyncio(bootstrap: str, topic: str) -> None:
    """The other face: two members share, one is closed, the other has everything."""
    create(bootstrap, topic)
    fill(bootstrap, topic)

    async def run() -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{topic}",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
        seen: set[tuple[TopicPartition, int]] = set()
        deadline = time.monotonic() + 60
        async with aio.Consumer[bytes, bytes](settings) as first:
            await first.subscribe([topic])
            async with aio.Consumer[bytes, bytes](settings) as second:
                await second.subscribe([topic])
                while not (
                    len(first.assignment()) == len(second.assignment()) == 2
                    and seen == everything(topic)
                ):
                    assert time.monotonic() < deadline, (first.assignment(), len(seen))
                    for each in (first, second):
                        records = await each.poll(0.05)
                        seen |= {(record.topic_partition, record.offset) for record in records}
            while len(first.assignment()) < PARTITIONS:
                assert time.monotonic() < deadline, first.assignment()
                await first.poll(0.05)

    asyncio.run(run())


STORIES: Final = [
    a_member_comes_and_goes,
    topics_are_matched_by_the_coordinator,
    an_expression_that_is_none,
    a_static_member_comes_back,
    who_polls_too_seldom_loses_its_partitions,
    an_unknown_assignor_is_refused,
    partitions_and_topics_that_come_later,
    with_asyncio,
]
