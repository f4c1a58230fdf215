"""`millstream.testing` with three brokers: moves of leaders and coordinators, cuts, kills, time."""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.waiting import wait_until

from millstream.testing import STORE, Kafka, TestBrokerError, start_kafka

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def cluster() -> Iterator[Kafka]:
    with start_kafka(3) as kafka:
        yield kafka


def produce(kafka: Kafka, topic: str, value: bytes) -> None:
    producer = confluent_kafka.Producer(kafka.client_settings("confluent"))
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def values(kafka: Kafka, topic: str, group: str, count: int) -> list[bytes]:
    with kafka.consumer(topic, group_id=group) as consumer:
        found: list[bytes] = []
        while len(found) < count:
            found += [bytes(each.value or b"") for each in consumer.poll(1_000)]
        consumer.commit()
    return found


def test_leaders_and_coordinators_move_and_die(cluster: Kafka) -> None:
    topic = cluster.topic("moved", 2)
    produce(cluster, topic, b"1")
    with pytest.raises(TestBrokerError, match="nothing was coordinated so far"):
        cluster.coordinator(transactional_id="t")
    assert values(cluster, topic, "g", 1) == [b"1"]
    for move in (0, 1):
        to = (cluster.leader(topic, move) + 1) % 3
        cluster.move_leader(topic, move, to=to)
        assert cluster.leader(topic, move) == to
    to = (cluster.coordinator(group="g") + 1) % 3
    cluster.move_coordinator(to=to, group="g")
    assert cluster.coordinator(group="g") == to
    with cluster.record() as requests:
        produce(cluster, topic, b"2")
        assert values(cluster, topic, "g", 1) == [b"2"]
    assert {each.broker for each in requests.all("OffsetCommit")} == {to}
    # Time passes for all at once, and no leadership is lost by it.
    leaders = [cluster.leader(topic, partition) for partition in (0, 1)]
    cluster.clock.advance(days=1)
    produce(cluster, topic, b"3")
    assert [cluster.leader(topic, partition) for partition in (0, 1)] == leaders
    cluster.broker(to).kill()
    assert values(cluster, topic, "g", 1) == [b"3"]
    assert cluster.coordinator(group="g") != to
    cluster.broker(to).start()
    with pytest.raises(TestBrokerError, match="there is no broker 7"):
        cluster.move_leader(topic, 0, to=7)


def test_brokers_that_are_cut_off(cluster: Kafka) -> None:
    topic = cluster.topic("cut", 1)
    leader = cluster.leader(topic)
    follower = next(each for each in range(3) if each != leader)
    cluster.cut(follower, leader)
    cluster.heal()
    produce(cluster, topic, b"1")  # a short cut loses nothing
    cluster.isolate(leader)
    wait_until(lambda: cluster_leader(cluster, topic, leader) not in (leader, -1), "a new leader")
    produce(cluster, topic, b"2")
    cluster.heal()
    wait_until(lambda: in_sync(cluster, topic) == {0, 1, 2}, "all replicas are in sync again")
    assert values(cluster, topic, "cut", 2) == [b"1", b"2"]
    with pytest.raises(TestBrokerError, match="from another one, or from STORE"):
        cluster.cut(1, 1)
    cluster.cut(0, STORE)
    cluster.heal(0, STORE)
    cluster.pause_store()
    produce(cluster, topic, b"3")
    cluster.resume_store()


def cluster_leader(kafka: Kafka, topic: str, isolated: int) -> int:
    """Return the leader as brokers see it that are not isolated."""
    others = [each.bootstrap for each in kafka.brokers if each.id != isolated]
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": others[0]})
    leader: int = client.list_topics(topic, timeout=10).topics[topic].partitions[0].leader
    return leader


def in_sync(kafka: Kafka, topic: str) -> set[int]:
    (found,) = kafka.admin.describe_partitions([topic]).values()
    return set(found.isr)
