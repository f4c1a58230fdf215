"""The coordinator of a transaction is killed (-9) again and again while a producer writes.

Each transaction writes one number into every partition. Whatever was killed when: a read_committed
reader finds every number once in each partition, and nothing of an aborted transaction.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from tests.cluster_processes import ClusterProcesses

from millstream.client import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.coordinator.group.partitioner import group_partition
from millstream.model.topic import TRANSACTION_STATE_TOPIC

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(420)]

TOPIC = "numbers"
PARTITIONS = 3
STATE_PARTITIONS = 3
KILLS = 6
TIMEOUT_S = 60.0
ID = "writer"
INDEX = group_partition(ID, STATE_PARTITIONS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
        "min.insync.replicas": "2",
        "auto.leader.rebalance.enable": "false",
    }
    directory = tmp_path_factory.mktemp("transactions")
    with ClusterProcesses(directory, settings=settings) as started:
        yield started


class Writer:
    """Writes one number after the other, each in a transaction, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.committed = 0
        self.failure: BaseException | None = None
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": ID,
                "transaction.timeout.ms": 60_000,
                "message.timeout.ms": 50_000,
                "reconnect.backoff.max.ms": 500,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Writer:
        self._producer.init_transactions(TIMEOUT_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(3 * TIMEOUT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                self._write(self.committed)
                self.committed += 1
        except BaseException as error:
            self.failure = error

    def _write(self, number: int) -> None:
        """Write a number for good: a transaction that has to be aborted is begun again."""
        while True:
            self._producer.begin_transaction()
            try:
                for index in range(PARTITIONS):
                    self._producer.produce(TOPIC, str(number), partition=index)
                if number % 7 == 3 and not self._stopped.is_set():
                    self._producer.produce(TOPIC, "aborted", partition=0)
                    self._producer.flush(TIMEOUT_S)
                    self._again(self._producer.abort_transaction)
                    self._producer.begin_transaction()
                    for index in range(PARTITIONS):
                        self._producer.produce(TOPIC, str(number), partition=index)
                self._again(self._producer.commit_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._again(self._producer.abort_transaction)
            else:
                return

    @staticmethod
    def _again(step: object) -> None:
        """Do a step again as long as its outcome is not known."""
        for _ in range(5):
            try:
                step(TIMEOUT_S)  # type: ignore[operator]
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return
        raise AssertionError("a transaction could not be ended")


def read_committed(cluster: ClusterProcesses, *, small: bool) -> list[Counter[str]]:
    """Return what each partition holds up to its end."""
    settings: dict[str, object] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    if small:
        settings["fetch.message.max.bytes"] = 200
    consumer = Consumer(settings)
    consumer.assign([ConfluentPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: list[Counter[str]] = [Counter() for _ in range(PARTITIONS)]
    at_end: set[int] = set()
    while len(at_end) < PARTITIONS:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"no end of the partitions: {at_end}"
        if message.error():
            at_end.add(message.partition())
        else:
            found[message.partition()][message.value().decode()] += 1
    consumer.close()
    return found


def wait_for_more(cluster: ClusterProcesses, writer: Writer) -> None:
    """Wait until ten more transactions are committed."""
    enough = writer.committed + 10

    def is_enough() -> bool:
        assert writer.failure is None, writer.failure
        return writer.committed >= enough

    cluster.until(is_enough, "ten more transactions")


@pytest.mark.long
def test_numbers_are_committed_once_while_coordinators_die(cluster: ClusterProcesses) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).get_all()
    with Writer(cluster.bootstrap) as writer:
        for _ in range(KILLS):
            wait_for_more(cluster, writer)
            state = cluster.partition(TRANSACTION_STATE_TOPIC, INDEX)
            assert state is not None
            coordinator = cluster[state.leader]
            coordinator.kill()
            wait_for_more(cluster, writer)
            coordinator.start()
            cluster.wait_for(TRANSACTION_STATE_TOPIC, {1, 2, 3})
            cluster.wait_for(TOPIC, {1, 2, 3})
    assert writer.failure is None, writer.failure
    expected = Counter({str(number): 1 for number in range(writer.committed)})
    for small in (False, True):
        for found in read_committed(cluster, small=small):
            assert found == expected
