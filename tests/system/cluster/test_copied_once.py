"""Copy, transform, write: each input is counted once by a committed reader, whatever dies.

A copier reads numbers, writes them on and commits what it has read in the same transaction.
Meanwhile leaders and coordinators are killed (kill -9) and restarted, all brokers die at once, and
the copier itself vanishes or aborts in the middle of transactions.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
from tests.cluster_processes import ClusterProcesses

from millstream.client import Admin, Consumer, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.errors import MillstreamError
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(600)]

INPUTS = 4_000
IN = [TopicPartition("in", index) for index in range(3)]
OUT = [TopicPartition("out", index) for index in range(3)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster")) as started:
        yield started


class ChangeError(Exception):
    """The copier changes its mind."""


class Copier:
    """Copies from a thread until everything is copied; a new producer after every failure."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._chance = random.Random(seed)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.copied = 0
        self.begun = 0
        self.unforeseen: list[BaseException] = []

    def __enter__(self) -> Copier:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def is_done(self) -> bool:
        return self.copied >= INPUTS or bool(self.unforeseen)

    def _run(self) -> None:
        while not self._stopped.is_set() and not self.is_done:
            try:
                self._copy()
            except (MillstreamError, ChangeError):
                continue
            except BaseException as error:
                self.unforeseen.append(error)
                raise

    def _copy(self) -> None:
        with (
            Consumer(
                bootstrap_servers=self._bootstrap,
                group_id="copy",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                max_poll_records=40,
            ) as consumer,
            Producer(
                bootstrap_servers=self._bootstrap,
                transactional_id="copy",
                transaction_timeout_ms=20_000,
                request_timeout_ms=5_000,
                max_block_ms=30_000,
                linger_ms=1,
            ) as producer,
        ):
            producer.init_transactions()
            consumer.assign(IN)
            for place, committed in consumer.committed(IN).items():
                consumer.seek(place, 0 if committed is None else committed.offset)
            while not self._stopped.is_set() and not self.is_done:
                self._transaction(consumer, producer)

    def _transaction(self, consumer: Consumer, producer: Producer) -> None:
        records = consumer.poll(1)
        if not records:
            self.copied = sum(
                committed.offset
                for committed in consumer.committed(IN).values()
                if committed is not None
            )
            return
        self.begun += 1
        producer.begin_transaction()
        for record in records:
            producer.send("out", record.value, partition=int(record.value or b"0") % len(OUT))
        if self._chance.random() < 0.1:
            producer.flush(30)
            raise ChangeError  # the producer is closed, its transaction left open
        offsets = {place: consumer.position(place) for place in IN}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if self._chance.random() < 0.1:
            producer.abort_transaction()
            raise ChangeError
        producer.commit_transaction()


def read(bootstrap: str, fetch_bytes: int) -> list[int]:
    found: list[int] = []
    with Consumer(
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        max_partition_fetch_bytes=fetch_bytes,
        fetch_max_bytes=fetch_bytes,
    ) as consumer:
        consumer.assign(OUT)
        ends = consumer.end_offsets(OUT)
        while any(consumer.position(place) < ends[place] for place in OUT):
            found += [int(record.value or b"-1") for record in consumer.poll(1)]
    return found


def make(cluster: ClusterProcesses) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        settings = {"min.insync.replicas": "2", "segment.bytes": "1048576"}
        topics = [NewTopic(name, 3, 3, settings) for name in ("in", "out")]
        admin.create_topics(topics).get_all()
    for index in range(3):
        cluster.until(lambda index=index: _is_whole(cluster, index), "replicas in sync")
    with Producer(bootstrap_servers=cluster.bootstrap) as producer:
        for number in range(INPUTS):
            producer.send("in", b"%d" % number, partition=number % 3)
        producer.flush(60)


def _is_whole(cluster: ClusterProcesses, index: int) -> bool:
    state = cluster.partition("out", index)
    return state is not None and len(state.isr) == 3


@pytest.mark.long
def test_each_input_is_counted_once(cluster: ClusterProcesses) -> None:
    make(cluster)
    with Copier(cluster.bootstrap, seed=7) as copier:
        for number, victims in enumerate([(1,), (2,), (3,), (1, 2, 3), (2,)]):
            goal = copier.begun + 8
            cluster.until(lambda goal=goal: copier.begun >= goal or copier.is_done, "transactions")
            for victim in victims:
                cluster[victim].kill()
            if number != 3:
                goal = copier.begun + 2
                cluster.until(
                    lambda goal=goal: copier.begun >= goal or copier.is_done, "transactions without"
                )
            for victim in victims:
                cluster[victim].start()
            for index in range(3):
                cluster.until(lambda index=index: _is_whole(cluster, index), "replicas in sync")
        cluster.until(lambda: copier.is_done, "the end of the input")
    assert not copier.unforeseen
    for fetch_bytes in (1, 300, 5_000, 1 << 20):
        found = read(cluster.bootstrap, fetch_bytes)
        assert sorted(found) == list(range(INPUTS))
