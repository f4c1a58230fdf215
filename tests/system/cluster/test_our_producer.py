"""Our producer through the death of leaders: three real brokers, kill −9, restart.

What was acknowledged is there once, in order, at the offset that was told; nothing is there twice.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from tests.cluster_processes import ClusterProcesses

from millstream.client import Admin, Consumer, Producer, RecordMetadata
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "numbers"
PARTITIONS = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster")) as started:
        yield started


class Load:
    """Numbers to each partition, as fast as a pause allows, from a thread."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failed: list[Exception] = []
        self.sent = 0
        self._stopped = threading.Event()
        self._producer = Producer(
            bootstrap_servers=bootstrap, linger_ms=1, batch_size=1000, request_timeout_ms=5000
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged))

    def _run(self) -> None:
        with self._producer as producer:
            while not self._stopped.wait(0.001):
                self._send(self.sent)
                self.sent += 1
            producer.flush(120)

    def _send(self, number: int) -> None:
        def told(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if error is not None:
                self.failed.append(error)
            else:
                assert metadata is not None
                self.acknowledged[metadata.partition][number] = metadata.offset

        self._producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=told)


def read(bootstrap: str, partition: int) -> list[int]:
    place = TopicPartition(TOPIC, partition)
    found: list[int] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [int(record.value or b"-1") for record in consumer.poll(1)]
    return found


def test_leaders_die_and_nothing_is_lost_doubled_or_reordered(cluster: ClusterProcesses) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        topic = NewTopic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": "2"})
        admin.create_topics([topic]).get_all()
    cluster.wait_for(TOPIC, {1, 2, 3})
    with Load(cluster.bootstrap) as load:
        for _ in range(2):
            goal = load.count + 500
            cluster.until(lambda goal=goal: load.count >= goal, "acknowledgements")
            leader = cluster.wait_for(TOPIC, {1, 2, 3}).leader
            cluster[leader].kill()
            cluster.wait_for(TOPIC, {1, 2, 3} - {leader})
            goal = load.count + 500
            cluster.until(lambda goal=goal: load.count >= goal, "acknowledgements without it")
            cluster[leader].start()
            cluster.wait_for(TOPIC, {1, 2, 3})
        time.sleep(0.2)
    assert not load.failed
    assert load.count == load.sent
    for partition, acknowledged in enumerate(load.acknowledged):
        there = read(cluster.bootstrap, partition)
        assert there == sorted(acknowledged)
        assert all(offset in (-1, there.index(n)) for n, offset in acknowledged.items())
