"""What the demo does with a stock client: librdkafka, as `confluent-kafka` wraps it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from millstream.cli.failures import CommandFailedError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

DELIVERY_TIMEOUT_S: Final = 120.0
_BATCH_BYTES: Final = 64 * 1024
_POLL_RECORDS: Final = 10_000
_POLL_TIMEOUT_S: Final = 0.05


@dataclass(slots=True)
class GroupReport:
    """Who had which partitions when, and how many records each member read."""

    assignments: list[tuple[str, str]] = field(default_factory=list)
    consumed: Mapping[str, int] = field(default_factory=dict)


def produce_lines(bootstrap: str, topic: str, source: Path) -> int:
    """Produce each line, keyed by its first word, the client's address; return how many."""
    producer = _stock().Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": _BATCH_BYTES,
            "log_level": 0,
        }
    )
    failures: list[str] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    count = 0
    with source.open("rb") as lines:
        for line in lines:
            value = line.removesuffix(b"\n")
            while True:
                try:
                    producer.produce(topic, value, value.partition(b" ")[0], on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
            producer.poll(0)
    left = producer.flush(DELIVERY_TIMEOUT_S)
    if failures or left:
        raise CommandFailedError(
            f"{len(failures) + left} records were not delivered: {(failures or ['no answer'])[0]}"
        )
    return count


class Member:
    """One consumer of the group; it reads nothing before ``start_reading``."""

    def __init__(self, bootstrap: str, group: str, name: str) -> None:
        self.name = name
        self.consumed = 0
        self._is_reading = False
        self._consumer = _stock().Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 300,
                "log_level": 0,
            }
        )

    @property
    def partitions(self) -> list[int]:
        """The partitions that the group gave this member."""
        return sorted(each.partition for each in self._consumer.assignment())

    def join(self, topic: str) -> None:
        """Subscribe; partitions come while the member polls."""
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def start_reading(self) -> None:
        """Read from now on."""
        self._is_reading = True
        self._consumer.resume(self._consumer.assignment())

    def poll(self) -> int:
        """Take what has come; return how many records."""
        messages = self._consumer.consume(_POLL_RECORDS, timeout=_POLL_TIMEOUT_S)
        for message in messages:
            error = message.error()
            if error is not None:
                raise CommandFailedError(f"{self.name}: {error}")
        self.consumed += len(messages)
        return len(messages)

    def close(self) -> None:
        """Commit and leave the group."""
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Only what is assigned can be paused, and librdkafka assigns after this call at the latest.
        consumer.assign(partitions)
        if not self._is_reading:
            consumer.pause(partitions)


def consume_as_group(bootstrap: str, topic: str, group: str, records: int) -> GroupReport:
    """Read the topic with two members that divide its partitions, and commit."""
    report = GroupReport()
    first = Member(bootstrap, group, "consumer-1")
    second = Member(bootstrap, group, "consumer-2")
    members = [first, second]
    try:
        first.join(topic)
        _poll_until(lambda: bool(first.partitions), [first])
        report.assignments.append(("the group with one member", _shares([first])))
        everything = first.partitions
        second.join(topic)
        _poll_until(
            lambda: (
                bool(second.partitions)
                and sorted(first.partitions + second.partitions) == everything
            ),
            members,
        )
        report.assignments.append(("the group with two", _shares(members)))
        for member in members:
            member.start_reading()
        _poll_until(lambda: first.consumed + second.consumed >= records, members)
    finally:
        for member in members:
            member.close()
    report.consumed = {member.name: member.consumed for member in members}
    return report


def _poll_until(condition: Callable[[], bool], members: Sequence[Member]) -> None:
    """Poll all members until the condition holds; CommandFailedError when nothing happens."""
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    while not condition():
        for member in members:
            if member.poll():
                deadline = time.monotonic() + DELIVERY_TIMEOUT_S
        if time.monotonic() > deadline:
            raise CommandFailedError(f"the group came to a stop: {_shares(members)}")


def _shares(members: Sequence[Member]) -> str:
    return "; ".join(
        f"{member.name} has partitions {', '.join(map(str, member.partitions)) or 'none'}"
        for member in members
    )


def _stock() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError:
        raise CommandFailedError(
            "the demo's stock client is missing: pip install confluent-kafka"
        ) from None
    return confluent_kafka
