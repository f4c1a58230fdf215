"""A group whose members come and go while records are produced: how late do records arrive?

Three members share the partitions; a fourth joins, and leaves again, several times. A record
carries the time at which it was sent. What counts of each change is the largest delay of a record
that was delivered between the change and the moment in which all partitions have their owner and
everything sent by then has arrived. ``python -m bench.load.members JSON`` prints JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from typing import Final

from millstream.client import Consumer, Producer
from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError

MEMBERS: Final = 3
PATIENCE_S: Final = 90.0
SETTLED_S: Final = 1.0
PROTOCOLS: Final[dict[str, dict[str, object]]] = {
    "eager": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "KIP-848": {"group.protocol": "consumer"},
}


class Deliveries:
    """What arrived, over all members."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[tuple[int, int]] = set()
        self.repeated = 0
        self.worst_s = 0.0

    @property
    def count(self) -> int:
        return len(self._seen)

    def begin(self) -> None:
        """Forget the worst delay: a change begins."""
        with self._lock:
            self.worst_s = 0.0

    def take(self, partition: int, offset: int, sent: float) -> None:
        late = time.perf_counter() - sent
        with self._lock:
            if (partition, offset) in self._seen:
                # Delivered before: that it comes again says nothing about the gap.
                self.repeated += 1
                return
            self._seen.add((partition, offset))
            self.worst_s = max(self.worst_s, late)


class Member(threading.Thread):
    """One consumer, that commits what it has before each poll."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, deliveries: Deliveries) -> None:
        super().__init__(daemon=True)
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"group-{topic}",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
            **PROTOCOLS[protocol],
        }
        self._topic = topic
        self._deliveries = deliveries
        self._stopping = threading.Event()
        self.has: frozenset[object] = frozenset()

    def run(self) -> None:
        with Consumer[bytes, bytes](self._settings) as consumer:
            consumer.subscribe([self._topic])
            while not self._stopping.is_set():
                with suppress(CommitFailedError, RebalanceInProgressError):
                    for record in consumer.poll(0.1):
                        assert record.value is not None
                        sent = float(record.value)
                        self._deliveries.take(record.partition, record.offset, sent)
                self.has = consumer.assignment()
        self.has = frozenset()

    def stop(self) -> None:
        self._stopping.set()


class Source(threading.Thread):
    """Sends records at a steady rate, to all partitions in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = bootstrap, topic
        self._partitions, self._per_second = partitions, per_second
        self._stopping = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer(bootstrap_servers=self._servers, linger_ms=0) as producer:
            producer.partitions_for(self._topic)
            started = time.perf_counter()
            while not self._stopping.is_set():
                due = int((time.perf_counter() - started) * self._per_second)
                while self.sent < due:
                    value = repr(time.perf_counter()).encode()
                    producer.send(self._topic, value, partition=self.sent % self._partitions)
                    self.sent += 1
                time.sleep(0.005)

    def stop(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)


def run(
    bootstrap: str, topic: str, *, partitions: int, protocol: str, per_second: int, changes: int
) -> dict[str, object]:
    """Return the largest delay of each join and of each leave in milliseconds."""
    deliveries = Deliveries()
    source = Source(bootstrap, topic, partitions, per_second)

    def member() -> Member:
        made = Member(bootstrap, topic, protocol, deliveries)
        made.start()
        return made

    def settle(members: list[Member]) -> None:
        """Wait until the members share all partitions, and what was sent has arrived."""
        deadline = time.monotonic() + PATIENCE_S
        settled_at: float | None = None
        while settled_at is None or time.monotonic() < settled_at + SETTLED_S:
            assert time.monotonic() < deadline, [len(each.has) for each in members]
            shares = [each.has for each in members]
            shared = sum(map(len, shares)) == partitions == len(frozenset().union(*shares))
            if not (shared and all(shares)):
                settled_at = None
            elif settled_at is None:
                settled_at = time.monotonic()
            time.sleep(0.01)
        expected = source.sent
        while deliveries.count < expected:
            assert time.monotonic() < deadline, f"{expected - deliveries.count} did not arrive"
            time.sleep(0.01)

    members = [member() for _ in range(MEMBERS)]
    source.start()
    settle(members)
    joins: list[float] = []
    leaves: list[float] = []
    for _ in range(changes):
        deliveries.begin()
        guest = member()
        settle([*members, guest])
        joins.append(deliveries.worst_s * 1000)
        deliveries.begin()
        guest.stop()
        guest.join(PATIENCE_S)
        settle(members)
        leaves.append(deliveries.worst_s * 1000)
    source.stop()
    for each in members:
        each.stop()
    for each in members:
        each.join(PATIENCE_S)
    return {"joins": joins, "leaves": leaves, "repeated": deliveries.repeated}


if __name__ == "__main__":
    print(json.dumps(run(**json.loads(sys.argv[1]))))
