"""Three real brokers and a real ZooKeeper: kill -9 of a leader, of a follower, of a group's
coordinator, under a stock producer and consumer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import TracebackType

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_processes import ClusterProcesses

pytestmark = [pytest.mark.system, pytest.mark.slow]

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {"replica.selector.class": RACK_AWARE}
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), settings=settings) as started:
        yield started


class Load:
    """An idempotent producer with acks=all that writes numbers, one after the other."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        self.acknowledged: list[int] = []
        self.failed: list[KafkaError] = []
        self._stopped = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped = True
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stopped:
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            self._producer.poll(0.002)
            number += 1
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.acknowledged.append(int(message.value() or b""))

    def wait_for_more(self, cluster: ClusterProcesses, count: int = 200) -> None:
        goal = len(self.acknowledged) + count
        cluster.until(lambda: len(self.acknowledged) >= goal, f"{count} more acknowledgements")


def create(cluster: ClusterProcesses, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    wanted = NewTopic(topic, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(30)
    cluster.wait_for(topic, {1, 2, 3})


def consumed(cluster: ClusterProcesses, topic: str, count: int, **settings: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"readers-of-{topic}",
            "enable.auto.commit": False,
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    deadline = time.monotonic() + 40
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
    consumer.close()
    return found


def test_nothing_acknowledged_is_lost_when_leader_and_follower_are_killed(
    cluster: ClusterProcesses,
) -> None:
    create(cluster, "killed")
    with Load(cluster.bootstrap, "killed") as load:
        load.wait_for_more(cluster)
        leader = cluster.wait_for("killed", {1, 2, 3}).leader
        cluster[leader].kill()
        load.wait_for_more(cluster)
        after = cluster.wait_for("killed", {1, 2, 3} - {leader})
        assert after.leader != leader
        assert after.leader_epoch > 0
        cluster[leader].start()
        cluster.wait_for("killed", {1, 2, 3})
        follower = next(each for each in (1, 2, 3) if each != after.leader)
        cluster[follower].kill()
        load.wait_for_more(cluster)
        cluster[follower].start()
        cluster.wait_for("killed", {1, 2, 3})
        load.wait_for_more(cluster)
    assert load.failed == []
    assert consumed(cluster, "killed", len(load.acknowledged)) == load.acknowledged


def test_a_group_goes_on_where_it_was_when_its_coordinator_is_killed(
    cluster: ClusterProcesses,
) -> None:
    create(cluster, "grouped")
    with Load(cluster.bootstrap, "grouped") as load:
        load.wait_for_more(cluster)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "survivors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe(["grouped"])
    first = consumer.consume(100, 30.0)
    assert [int(each.value() or b"") for each in first] == list(range(100))
    consumer.commit(asynchronous=False)
    coordinators = {cluster.partition("__consumer_offsets", each).leader for each in range(3)}  # type: ignore[union-attr]
    victim = coordinators.pop()
    cluster[victim].kill()
    cluster.until(
        lambda: all(
            (state := cluster.partition("__consumer_offsets", each)) is not None
            and state.leader not in (victim, -1)
            for each in range(3)
        ),
        "new coordinators",
    )
    (committed,) = consumer.committed([TopicPartition("grouped", 0)], timeout=30)
    assert committed.offset == 100
    consumer.close()
    cluster[victim].start()
    cluster.wait_for("grouped", {1, 2, 3})


def test_a_consumer_reads_in_its_own_rack(cluster: ClusterProcesses) -> None:
    create(cluster, "racks")
    with Load(cluster.bootstrap, "racks") as load:
        load.wait_for_more(cluster)
    leader = cluster.wait_for("racks", {1, 2, 3}).leader
    near = next(each for each in (1, 2, 3) if each != leader)
    found = consumed(cluster, "racks", len(load.acknowledged), client_rack=f"rack-{near}")
    assert found == load.acknowledged
