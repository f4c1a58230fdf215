"""Consumer groups on a real broker: members come and go, the broker is killed, nothing is lost.

The volume runs through the C client, smaller variants through the two Python clients.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.interop.clients.patience import ASK_AGAIN_MS, JOIN_MS
from tests.system.group_story import (
    GROUP,
    PARTITIONS,
    PATIENCE_S,
    SESSION_TIMEOUT_MS,
    SETTINGS,
    TOPIC,
    Arrival,
    CommittedWatch,
    GroupClient,
    Member,
    Received,
    check_log,
    committed_now,
    create_numbers_topic,
    quiet,
    wait_until,
)

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as PythonKafkaError

T = TypeVar("T")

pytestmark = [
    pytest.mark.system,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

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


QUIET_AND_QUICK = {"log_level": 0, "error_cb": quiet, "reconnect.backoff.max.ms": 500}


class ConfluentClient:
    """A member that uses confluent-kafka."""

    def __init__(self, broker: BrokerProcess, strategy: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": GROUP,
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                **QUIET_AND_QUICK,
            }
        )
        self.partitions = 0
        """How many partitions it has been assigned so far."""
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions += len(partitions)

    def poll(self) -> list[Arrival]:
        found = []
        for message in self._consumer.consume(5_000, 0.1):
            if message.error() is None:
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                found.append(Arrival(partition, offset, int(value)))
        return found

    def commit(self, positions: Mapping[int, int]) -> bool:
        offsets = [TopicPartition(TOPIC, p, offset) for p, offset in positions.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() not in NOT_MINE_ANY_MORE:
                raise
            return False
        return True

    def positions(self) -> Mapping[int, int]:
        mine = self._consumer.position(self._consumer.assignment())
        return {each.partition: each.offset for each in mine if each.offset >= 0}

    def close(self) -> None:
        self._consumer.close()


class Production(threading.Thread):
    """Writes the numbers below ``count``, as far as released, and keeps those acknowledged."""

    def __init__(self, broker: BrokerProcess, count: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._count = count
        self._released = 0
        self.acknowledged: set[int] = set()

    def release(self, share: float) -> None:
        """Let it write up to this share of the numbers."""
        self._released = int(share * self._count)

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2_000_000,
                **QUIET_AND_QUICK,
            }
        )
        piece = self._count // 200
        for number in range(self._count):
            if number % piece == 0:
                # Unhurried, so that there is always something on its way.
                producer.poll(0.01)
                while number >= self._released:
                    producer.poll(0.01)
            producer.produce(
                TOPIC, str(number).encode(), partition=number % PARTITIONS, callback=self._note
            )
            if number % 1_000 == 0:
                producer.poll(0)
        producer.flush(PATIENCE_S)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert isinstance(value, bytes)
            self.acknowledged.add(int(value))


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize(
    "count",
    [
        60_000,
        pytest.param(
            1_000_000, marks=[pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]
        ),
    ],
)
def test_members_come_and_go_and_the_broker_dies_while_a_producer_writes(
    tmp_path: Path, strategy: str, count: int
) -> None:
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        create_numbers_topic(broker)
        received = Received()

        def new_member() -> tuple[ConfluentClient, Member]:
            client = ConfluentClient(broker, strategy)
            member = Member(client, received)
            member.start()
            return client, member

        production = Production(broker, count)
        production.release(0.2)
        watch = CommittedWatch(broker)
        _, first = new_member()
        production.start()
        watch.start()
        _, second = new_member()
        wait_until(lambda: second.received > 0)
        for share in (0.2, 0.3, 0.4, 0.5) if count > 100_000 else (0.2, 0.5):
            production.release(share + 0.1)
            wait_until(lambda share=share: len(production.acknowledged) > share * count)  # type: ignore[misc]
            broker.kill()
            broker.start()
            if share == 0.2:
                first.leave()
                client, third = new_member()
        wait_until(lambda: client.partitions > 0)
        production.release(1.0)
        production.join()
        assert production.acknowledged == set(range(count))
        received.wait_for(count)
        assert third.received > 0
        second.leave()
        third.leave()
        watch.end()
        check_log(broker, count)
        assert sum(committed_now(broker).values()) == count
        broker.kill()
        broker.start()
        assert sum(committed_now(broker).values()) == count
    finally:
        broker.stop()


class PythonClient:
    """A member that uses kafka-python."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=broker.bootstrap,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            metadata_max_age_ms=ASK_AGAIN_MS,
        )

    def poll(self) -> list[Arrival]:
        try:
            polled = self._consumer.poll(JOIN_MS, max_records=2_000)
        except PythonKafkaError as error:
            if not error.retriable:
                raise
            return []
        return [
            Arrival(record.partition, record.offset, int(record.value))
            for records in polled.values()
            for record in records
        ]

    def commit(self, positions: Mapping[int, int]) -> bool:
        offsets = {
            kafka.TopicPartition(TOPIC, partition): kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in positions.items()
        }
        try:
            self._consumer.commit(offsets)
        except PythonKafkaError as error:
            if not (error.retriable or "ebalance" in str(error)):
                raise
            return False
        return True

    def positions(self) -> Mapping[int, int]:
        return {
            each.partition: self._consumer.position(each) for each in self._consumer.assignment()
        }

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def write_with_kafka_python(broker: BrokerProcess, count: int) -> int:
    """Write the numbers below ``count``; return how many were acknowledged."""
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=True, linger_ms=5
    )
    sent = []
    for number in range(count):
        sent.append(producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS))
        if number % 100 == 0:
            time.sleep(0.01)
    acknowledged = sum(
        each.get(PATIENCE_S).offset == n // PARTITIONS for n, each in enumerate(sent)
    )
    producer.close()
    return acknowledged


class AioClient:
    """A member that uses aiokafka, on a loop of its own that runs while it is used."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._loop = asyncio.new_event_loop()
        self._broker = broker
        self._consumer: AIOKafkaConsumer | None = None

    def _run(self, work: Callable[[AIOKafkaConsumer], Awaitable[T]]) -> T:
        async def started() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                TOPIC,
                bootstrap_servers=self._broker.bootstrap,
                group_id=GROUP,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=SESSION_TIMEOUT_MS,
                heartbeat_interval_ms=500,
            )
            await consumer.start()
            return consumer

        if self._consumer is None:
            self._consumer = self._loop.run_until_complete(started())
        return self._loop.run_until_complete(work(self._consumer))

    def poll(self) -> list[Arrival]:
        found = self._run(lambda consumer: consumer.getmany(timeout_ms=100, max_records=2_000))
        return [
            Arrival(record.partition, record.offset, int(record.value))
            for records in found.values()
            for record in records
        ]

    def commit(self, positions: Mapping[int, int]) -> bool:
        offsets = {AioTopicPartition(TOPIC, p): offset for p, offset in positions.items()}
        try:
            self._run(lambda consumer: consumer.commit(offsets))
        except AioKafkaError as error:
            if not (error.retriable or "ebalance" in str(error)):
                raise
            return False
        return True

    def positions(self) -> Mapping[int, int]:
        async def ask(consumer: AIOKafkaConsumer) -> dict[int, int]:
            return {each.partition: await consumer.position(each) for each in consumer.assignment()}

        return self._run(ask)

    def close(self) -> None:
        self._run(lambda consumer: consumer.stop())
        self._loop.close()


def write_with_aiokafka(broker: BrokerProcess, count: int) -> int:
    """Write the numbers below ``count``; return how many were acknowledged."""

    async def write() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True, linger_ms=5
        )
        await producer.start()
        sent = []
        for number in range(count):
            sent.append(await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS))
            if number % 100 == 0:
                await asyncio.sleep(0.01)
        answers = await asyncio.wait_for(asyncio.gather(*sent), PATIENCE_S)
        await producer.stop()
        return sum(answer.offset == n // PARTITIONS for n, answer in enumerate(answers))

    return asyncio.run(write())


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("new_client", "write"),
    [(PythonClient, write_with_kafka_python), (AioClient, write_with_aiokafka)],
    ids=["kafka-python", "aiokafka"],
)
def test_the_python_clients_live_through_it_too(
    tmp_path: Path,
    new_client: Callable[[BrokerProcess], GroupClient],
    write: Callable[[BrokerProcess, int], int],
) -> None:
    count = 20_000
    acknowledged: list[int] = []
    broker = BrokerProcess(tmp_path, SETTINGS)
    broker.start()
    try:
        create_numbers_topic(broker)
        received = Received()
        watch = CommittedWatch(broker)
        members = [Member(new_client(broker), received) for _ in range(2)]
        production = threading.Thread(
            target=lambda: acknowledged.append(write(broker, count)), daemon=True
        )
        production.start()
        watch.start()
        for member in members:
            member.start()
        wait_until(lambda: len(received.values) > count // 4)
        broker.kill()
        broker.start()
        wait_until(lambda: len(received.values) > count // 2)
        members[0].leave()
        late = Member(new_client(broker), received)
        late.start()
        production.join(PATIENCE_S)
        assert acknowledged == [count]
        received.wait_for(count)
        members[1].leave()
        late.leave()
        watch.end()
        check_log(broker, count)
        assert sum(committed_now(broker).values()) == count
    finally:
        broker.stop()
        gc.collect()  # the clients leave sockets to it that could not be connected
