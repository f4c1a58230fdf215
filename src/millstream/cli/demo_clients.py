"""What the demo does with the client: a keyed production, and a group of two that divides it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.cli.failures import CommandFailedError
from millstream.cli.produce import Deliveries
from millstream.client import Consumer, Producer
from millstream.model.topic import TopicPartition

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
    deliveries = Deliveries()
    count = 0
    with (
        Producer(bootstrap_servers=bootstrap, linger_ms=20, batch_size=_BATCH_BYTES) as producer,
        source.open("rb") as lines,
    ):
        for line in lines:
            value = line.removesuffix(b"\n")
            producer.send(topic, value, value.partition(b" ")[0], on_delivery=deliveries)
            count += 1
        producer.flush(DELIVERY_TIMEOUT_S)
    deliveries.raise_first()
    return count


class Member:
    """One consumer of the group; it reads nothing before ``start_reading``."""

    def __init__(self, bootstrap: str, group: str, name: str) -> None:
        self.name = name
        self.consumed = 0
        self._is_reading = False
        self._consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
            max_poll_records=_POLL_RECORDS,
        )

    @property
    def partitions(self) -> list[int]:
        """The partitions that the group gave this member."""
        return sorted(each.partition for each in self._consumer.assignment())

    def join(self, topic: str) -> None:
        """Subscribe; partitions come while the member polls."""
        self._consumer.subscribe([topic], listener=self)

    def start_reading(self) -> None:
        """Read from now on."""
        self._is_reading = True
        self._consumer.resume(*self._consumer.assignment())

    def poll(self) -> int:
        """Take what has come; return how many records."""
        records = self._consumer.poll(_POLL_TIMEOUT_S)
        self.consumed += len(records)
        return len(records)

    def close(self) -> None:
        """Commit and leave the group."""
        self._consumer.close()

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Do not read what came before the reading starts."""
        if not self._is_reading:
            self._consumer.pause(*partitions)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing to do: what was read is committed by the consumer itself."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing to do: others read on from what was committed."""


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
            raise CommandFailedError(f"the group stopped: {_shares(members)}")


def _shares(members: Sequence[Member]) -> str:
    return "; ".join(
        f"{member.name} has partitions {', '.join(map(str, member.partitions)) or 'none'}"
        for member in members
    )
