"""A thin stream of writes, or of committed offsets, that notices how long nothing is acknowledged.

Stock settings of the C client but for acks=all: what it does when a broker dies is part of what is
measured.
"""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

EVERY_S = 0.005
EVERY_OTHER = 5
GIVE_UP_S = 60.0


@dataclass
class Acknowledged:
    """What was acknowledged: when it was asked for and when the answer came (``perf_counter``)."""

    values: set[bytes] = field(default_factory=set)
    times: list[tuple[float, float]] = field(default_factory=list)

    def add(self, value: bytes, asked_at: float) -> None:
        """Take note of one more."""
        self.values.add(value)
        self.times.append((asked_at, time.perf_counter()))

    def first_after(self, moment: float) -> float | None:
        """Return the seconds from a moment to the first answer to something asked after it."""
        return min((at - moment for asked, at in tuple(self.times) if asked > moment), default=None)

    def largest_gap(self, since: float) -> float:
        """Return the longest time between two answers, of which one came after ``since``."""
        moments = sorted(at for _, at in tuple(self.times))
        return max((b - a for a, b in pairwise(moments) if b > since), default=0.0)


class Trickle(ABC):
    """Does something small every 5 ms on a thread of its own; a context manager."""

    def __init__(self) -> None:
        self.acknowledged = Acknowledged()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trickle", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.once()
            self.finish()
        except Exception as error:
            self.failure = error

    @abstractmethod
    def once(self) -> None:
        """Do it once, and wait a little."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for the last answers and hang up."""

    def wait_for_answer(self, after: float) -> float:
        """Return the seconds from ``after`` to the first answer to what was asked later."""
        deadline = time.monotonic() + GIVE_UP_S
        while (seconds := self.acknowledged.first_after(after)) is None:
            if self.failure is not None:
                raise self.failure
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing was acknowledged for {GIVE_UP_S:g} s")
            time.sleep(0.002)
        return seconds


class WriteTrickle(Trickle):
    """Writes distinct values to one partition with acks=all, and now and then to the others: a
    client has connections to all brokers, as one that writes a topic has.
    """

    def __init__(self, bootstrap: str, topic: str, partition: int, *, partitions: int) -> None:
        super().__init__()
        self._topic = topic
        self._partition = partition
        self._others = itertools.cycle(range(partitions))
        self._count = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "message.timeout.ms": int(GIVE_UP_S * 1000),
                "log_level": 0,
            }
        )

    def once(self) -> None:
        """Send a value; a failed one is none that was acknowledged."""
        self._count += 1
        if self._count % EVERY_OTHER == 0:
            self._producer.produce(self._topic, b"", partition=next(self._others))
        asked_at = time.perf_counter()
        value = b"%d" % time.time_ns()

        def told(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self.acknowledged.add(value, asked_at)

        self._producer.produce(self._topic, value, partition=self._partition, on_delivery=told)
        self._producer.poll(EVERY_S)

    def finish(self) -> None:
        """Wait for the last answers."""
        self._producer.flush(GIVE_UP_S)


class CommitTrickle(Trickle):
    """Commits rising offsets of a group for one partition, one after the other."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__()
        self._topic = topic
        self.last_committed = 0
        self._next = 1
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )

    def once(self) -> None:
        """Commit the next offset; one that failed may have been committed."""
        asked_at = time.perf_counter()
        place = TopicPartition(self._topic, 0, self._next)
        try:
            (result,) = self._consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException:
            time.sleep(EVERY_S)
            return
        if result.error is None:
            self.last_committed = self._next
            self._next += 1
            self.acknowledged.add(b"%d" % self.last_committed, asked_at)
        time.sleep(EVERY_S)

    def finish(self) -> None:
        """Leave."""
        self._consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    """Return what a group has committed for the first partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        (place,) = consumer.committed([TopicPartition(topic, 0)], timeout=GIVE_UP_S)
        return int(place.offset)
    finally:
        consumer.close()


def read_back(bootstrap: str, topic: str, partition: int) -> set[bytes]:
    """Return every value in a partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-back",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    place = TopicPartition(topic, partition, 0)
    found: set[bytes] = set()
    try:
        _, end = reader.get_watermark_offsets(place, timeout=GIVE_UP_S)
        reader.assign([place])
        last, deadline = -1, time.monotonic() + GIVE_UP_S
        while last < end - 1:
            if time.monotonic() > deadline:
                raise TimeoutError(f"read up to {last} of {end}")
            for message in reader.consume(10_000, timeout=0.2):
                if message.error() is None:
                    found.add(bytes(message.value() or b""))
                    last = max(last, message.offset() or 0)
    finally:
        reader.close()
    return found
