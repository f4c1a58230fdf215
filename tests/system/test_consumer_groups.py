"""Consumer groups on a real broker: members come and go, the broker is killed, nothing is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system

TOPIC = "numbers"
PARTITIONS = 4
SETTINGS = {"group.initial.rebalance.delay.ms": "100"}
PATIENCE_S = 60.0
NOT_MINE_ANY_MORE = {
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._DESTROY,
}
"""A commit that fails so: another member has the partition, or the broker is down; whoever goes on
there reads the records again.
"""
QUIET = {"log_level": 0, "error_cb": lambda _error: None}


def create_topic(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUIET})
    created = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
    created[TOPIC].result(PATIENCE_S)


class Production(threading.Thread):
    """Writes the numbers 0 to ``count - 1`` and keeps those that the broker acknowledged."""

    def __init__(self, broker: BrokerProcess, count: int, *, pause_every: int = 0) -> None:
        super().__init__()
        self._broker = broker
        self._count = count
        self._pause_every = pause_every
        self.acknowledged: set[int] = set()

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2_000_000,
                **QUIET,
            }
        )
        for number in range(self._count):
            producer.produce(
                TOPIC, str(number).encode(), partition=number % PARTITIONS, callback=self._note
            )
            if number % 1_000 == 0:
                producer.poll(0)
            if self._pause_every and number % self._pause_every == 0:
                time.sleep(0.01)
        producer.flush(PATIENCE_S)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            self.acknowledged.add(int(value))


class Member(threading.Thread):
    """A consumer that processes a batch, commits it, and goes on until it is told to leave."""

    def __init__(
        self, broker: BrokerProcess, strategy: str, on_record: Callable[[int, int, int], None]
    ) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **QUIET,
            }
        )
        self._on_record = on_record
        self._leaving = threading.Event()
        self.received = 0
        self.assignments = 0

    def run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        while not self._leaving.is_set():
            messages = self._consumer.consume(2_000, 0.1)
            positions: dict[int, int] = {}
            for message in messages:
                if message.error() is None:
                    self._take(message, positions)
            if positions:
                self._commit(positions)
        self._consumer.close()

    def leave(self) -> None:
        self._leaving.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()

    def _assigned(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.assignments += 1

    def _take(self, message: Message, positions: dict[int, int]) -> None:
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        self.received += 1
        positions[partition] = offset + 1
        self._on_record(partition, offset, int(value))

    def _commit(self, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(TOPIC, p, offset) for p, offset in positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in NOT_MINE_ANY_MORE:
                raise


class Received:
    """What the members got, by partition and offset."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: dict[tuple[int, int], int] = {}
        self.times: Counter[int] = Counter()

    def note(self, partition: int, offset: int, value: int) -> None:
        with self._lock:
            assert self.values.setdefault((partition, offset), value) == value
            self.times[value] += 1

    def wait_for(self, wanted: Callable[[], set[int]]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with self._lock:
                if wanted() <= self.times.keys():
                    return
            time.sleep(0.05)
        with self._lock:
            missing = wanted() - self.times.keys()
        pytest.fail(
            f"{len(missing)} records were never delivered, {sorted(missing)[:5]} among them"
        )


def committed(broker: BrokerProcess) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", **QUIET})
    wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    offsets = {part.partition: part.offset for part in consumer.committed(wanted, PATIENCE_S)}
    consumer.close()
    return offsets


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "count", [100_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(300)])]
)
def test_members_come_and_go_while_a_producer_writes(
    tmp_path: Path, strategy: str, count: int
) -> None:
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        create_topic(broker)
        received = Received()
        production = Production(broker, count, pause_every=2_000)
        first = Member(broker, strategy, received.note)
        first.start()
        production.start()
        second = Member(broker, strategy, received.note)
        second.start()
        wait_until(lambda: second.received > 0)
        first.leave()
        third = Member(broker, strategy, received.note)
        third.start()
        production.join()
        assert production.acknowledged == set(range(count))
        received.wait_for(lambda: production.acknowledged)
        wait_until(lambda: third.assignments > 0)
        second.leave()
        third.leave()
        assert sum(committed(broker).values()) == count
        per_partition = Counter(partition for partition, _ in received.values)
        assert per_partition == {p: len(range(p, count, PARTITIONS)) for p in range(PARTITIONS)}


def test_committed_offsets_survive_kill_9(tmp_path: Path) -> None:
    count = 60_000
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        create_topic(broker)
        received = Received()
        production = Production(broker, count, pause_every=500)
        members = [Member(broker, "range", received.note) for _ in range(2)]
        production.start()
        for member in members:
            member.start()
        for enough in (count // 4, count // 2):
            wait_until(lambda enough=enough: len(received.values) > enough)  # type: ignore[misc]
            floor = committed(broker)
            broker.kill()
            broker.start()
            after = committed(broker)
            assert all(after[partition] >= offset for partition, offset in floor.items())
        production.join()
        received.wait_for(lambda: production.acknowledged)
        for member in members:
            member.leave()
        assert len(production.acknowledged) == count
        assert sum(committed(broker).values()) == count
        broker.kill()
        broker.start()
        assert sum(committed(broker).values()) == count
    finally:
        broker.stop()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
