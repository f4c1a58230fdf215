"""Share consumers of librdkafka on a broker of ours, alone and in one group with ours."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import confluent_kafka
import pytest
from tests.broker_process import BrokerProcess

from millstream.client import Admin, ShareConsumer
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(
        not hasattr(confluent_kafka, "ShareConsumer"), reason="librdkafka has no share consumer"
    ),
]

COUNT = 200
PATIENCE_S = 60.0


def prepare(broker: BrokerProcess, topic: str) -> None:
    """Make a topic with records, and a share group of its name that begins at its start."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=2)]).get_all()
        group = Resource(ResourceType.GROUP, topic)
        change = Change("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({group: [change]}).get_all()
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        producer.produce(topic, str(number), partition=number % 2)
        if number % 20 == 19:
            producer.flush(30)
    assert producer.flush(30) == 0


def consumer(broker: BrokerProcess, topic: str, **settings: str) -> confluent_kafka.ShareConsumer:
    made = confluent_kafka.ShareConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    made.subscribe([topic])
    return made


def test_records_are_released_rejected_and_accepted(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    prepare(broker, topic)
    accepted: Counter[int] = Counter()
    released: set[int] = set()
    rejected: set[int] = set()
    one = consumer(broker, topic, share_acknowledgement_mode="explicit")
    end = time.monotonic() + PATIENCE_S
    kinds = confluent_kafka.AcknowledgeType
    while len(accepted) + len(rejected) < COUNT and time.monotonic() < end:
        for message in one.poll(1):
            assert message.error() is None
            number = int(message.value())
            if number % 10 == 3 and number not in released:
                released.add(number)
                one.acknowledge(message, kinds.RELEASE)
            elif number % 10 == 7:
                rejected.add(number)
                one.acknowledge(message, kinds.REJECT)
            else:
                accepted[number] += 1
                one.acknowledge(message, kinds.ACCEPT)
        one.commit_sync()
    one.close()
    assert rejected == {number for number in range(COUNT) if number % 10 == 7}
    assert released == {number for number in range(COUNT) if number % 10 == 3}
    assert set(accepted) == set(range(COUNT)) - rejected
    assert set(accepted.values()) == {1}


@pytest.mark.long
def test_a_group_of_librdkafkas_consumer_and_ours(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    """What one leaves without an acknowledgement, the other gets at once when it closes."""
    topic = new_topic()
    prepare(broker, topic)
    theirs = consumer(broker, topic, share_acknowledgement_mode="explicit", max_poll_records="20")
    held: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while not held and time.monotonic() < end:
        held = [int(message.value()) for message in theirs.poll(1)]
    assert held
    theirs.close()
    found: Counter[int] = Counter()
    with ShareConsumer(bootstrap_servers=broker.bootstrap, group_id=topic) as ours:
        ours.subscribe([topic])
        while len(found) < COUNT and time.monotonic() < end:
            for record in ours.poll(1):
                assert record.value is not None
                found[int(record.value)] += 1
                # What the other one had acquired, and perhaps not returned yet, was delivered once.
                assert record.delivery_count <= 2
                assert int(record.value) not in held or record.delivery_count == 2
        ours.commit()
    assert set(found) == set(range(COUNT))
    assert set(found.values()) == {1}
