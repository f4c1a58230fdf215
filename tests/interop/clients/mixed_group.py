"""Members of one group, each of another client, on threads of their own."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterable

import confluent_kafka
from tests.interop.clients.patience import ASK_AGAIN_MS, JOIN_MS

from millstream.client import Consumer
from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError
from millstream.model.topic import TopicPartition

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import CommitFailedError as PythonCommitFailedError
    from kafka.errors import KafkaError as PythonKafkaError

SESSION_MS = 6_000
PATIENCE_S = 60.0


class Member(threading.Thread):
    """Reads, notes what it saw, then commits. ``has`` is what it is assigned now."""

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__(name=type(self).__name__, daemon=True)
        self.bootstrap, self.group, self.topic, self.strategy = bootstrap, group, topic, strategy
        self.seen: set[tuple[int, int]] = set()
        self.twice: list[tuple[int, int]] = []
        self.has: frozenset[int] = frozenset()
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.read()
        except BaseException as error:
            self.failure = error
        finally:
            self.has = frozenset()

    def read(self) -> None:
        raise NotImplementedError

    def note(self, records: Iterable[tuple[int, int]]) -> None:
        """Note partitions and offsets of what came."""
        came = list(records)
        self.twice += [each for each in came if each in self.seen]
        self.seen.update(came)

    def stop(self) -> None:
        self.stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), self.name
        if self.failure is not None:
            raise self.failure


class Ours(Member):
    def settings(self) -> dict[str, object]:
        return {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": self.strategy,
        }

    def read(self) -> None:
        with Consumer[bytes, bytes](
            self.settings(),
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            consumer.subscribe([self.topic])
            while not self.stopping.is_set():
                records = consumer.poll(0.1)
                self.note((each.partition, each.offset) for each in records)
                self.has = frozenset(each.partition for each in consumer.assignment())
                if records:
                    try:
                        consumer.commit()
                    except (CommitFailedError, RebalanceInProgressError):
                        continue


class OursByHeartbeats(Ours):
    """By the consumer protocol (KIP-848); ``strategy`` is an assignor of the coordinator."""

    def settings(self) -> dict[str, object]:
        return {"group.protocol": "consumer", "group.remote.assignor": self.strategy}


class Librdkafka(Member):
    def settings(self) -> dict[str, str | int | float | bool]:
        return {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": self.strategy,
        }

    def read(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **self.settings(),
            }
        )
        consumer.subscribe([self.topic])
        try:
            while not self.stopping.is_set():
                messages = [each for each in consumer.consume(100, 0.1) if each.error() is None]
                for each in messages:
                    partition, offset = each.partition(), each.offset()
                    assert partition is not None
                    assert offset is not None
                    self.note([(partition, offset)])
                self.has = frozenset(each.partition for each in consumer.assignment())
                if messages:
                    try:
                        consumer.commit(asynchronous=False)
                    except confluent_kafka.KafkaException:
                        continue
        finally:
            consumer.close()


class LibrdkafkaByHeartbeats(Librdkafka):
    """By the consumer protocol (KIP-848)."""

    def settings(self) -> dict[str, str | int | float | bool]:
        return {"group.protocol": "consumer", "group.remote.assignor": self.strategy}


class KafkaPython(Member):
    ASSIGNORS = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}  # noqa: RUF012

    def read(self) -> None:
        consumer = kafka.KafkaConsumer(
            self.topic,
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=200,
            metadata_max_age_ms=ASK_AGAIN_MS,
            partition_assignment_strategy=[self.ASSIGNORS[self.strategy]],
        )
        try:
            while not self.stopping.is_set():
                polled = consumer.poll(timeout_ms=JOIN_MS)
                self.note((r.partition, r.offset) for rs in polled.values() for r in rs)
                self.has = frozenset(each.partition for each in consumer.assignment())
                if polled:
                    try:
                        consumer.commit()
                    except (PythonCommitFailedError, PythonKafkaError):
                        continue
        finally:
            consumer.close()


def wait_for(condition: Callable[[], bool], about: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, about()
        time.sleep(0.05)


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """Return the committed offsets of a topic by partition, 0 for none."""
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer[bytes, bytes](bootstrap_servers=bootstrap, group_id=group) as consumer:
        found = consumer.committed(places)
    return [0 if (each := found[place]) is None else each.offset for place in places]
