"""Stock clients whose every send, poll and commit is written down for the checker.

==============  ===========================================================================
``Writer``      what every producer of unique values has; ``Reader`` the same of a group's member
``Sender``      an idempotent producer with acks=all (librdkafka, as all that follow)
``Member``      a member of a group that commits what it has read, batch by batch
``Asker``       asks again and again what the group has committed
``read_all``    reads partitions from their beginning to their end
==============  ===========================================================================

They know nothing but the addresses of the brokers, so they serve Apache Kafka as well. ``settings``
are further ones of librdkafka: who the client is, on brokers that ask.
"""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from millstream.history.checker import (
    Anomaly,
    GroupOffset,
    History,
    Outcome,
    Poll,
    Send,
    Step,
    judge,
)

PATIENCE_S: Final = 90.0
UNCERTAIN: Final = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._TRANSPORT,
    }
)
"""Errors after which the record may be there all the same."""
QUICK: Final = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 6_000,
}
_ids = itertools.count()


class Watched(ABC):
    """A client in a thread of its own, from ``with`` to its end."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.broken: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self):  # type: ignore[no-untyped-def]
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopped.set()
        self._thread.join(10 if kind else 2 * PATIENCE_S)
        if kind is None:
            assert not self._thread.is_alive(), f"{self} does not end"
            if self.broken is not None:
                raise self.broken

    def _work(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self.broken = error

    @abstractmethod
    def run(self) -> None:
        """Do the client's work until ``stopped``."""

    def until(
        self, condition: Callable[[], bool], what: str, at_most_s: float = PATIENCE_S
    ) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + at_most_s
        while not condition():
            if self.broken is not None:
                raise self.broken
            assert time.monotonic() < deadline, f"in vain: {what}"
            time.sleep(0.02)


class Writer(Watched):
    """Sends to each partition in turn; ``acknowledgements`` are (partition, sent, acknowledged)."""

    def __init__(self, topic: str, history: History, name: str, partitions: int = 1) -> None:
        super().__init__()
        self.topic = topic
        self.name = name
        self.partitions = partitions
        self._history = history
        self.acknowledgements: list[tuple[int, float, float]] = []
        self.failures: list[object] = []

    @property
    def acknowledged(self) -> int:
        return len(self.acknowledgements)

    def sending(self, number: int) -> Send:
        """Note that the next value is about to be sent."""
        place = (self.topic, number % self.partitions)
        return self._history.send(
            Send(place, f"{self.name}:{number}", self.name, durable=True, once=True)
        )

    def told(self, send: Send, offset: int, sent: float) -> None:
        """Note that a value was acknowledged."""
        send.outcome, send.offset = Outcome.ACKNOWLEDGED, offset
        self.acknowledgements.append((send.partition[1], sent, time.monotonic()))

    def wait_for_more(self, count: int = 100, at_most_s: float = PATIENCE_S) -> None:
        goal = self.acknowledged + count
        self.until(lambda: self.acknowledged >= goal, f"{count} more acknowledgements", at_most_s)

    def first_after(self, moment: float) -> float:
        """Return how long it took until each partition acknowledged something sent since then."""
        first: dict[int, float] = {}

        def everyone() -> bool:
            for partition, sent, acknowledged in tuple(self.acknowledgements):
                if sent >= moment:
                    first.setdefault(partition, acknowledged - moment)
            return len(first) == self.partitions

        self.until(everyone, "an acknowledged write to each partition")
        return max(first.values())

    def longest_gap(self, since: float) -> float:
        """Return the longest time in which some partition acknowledged nothing."""
        gaps = [0.0]
        for partition in range(self.partitions):
            times = sorted(end for index, _, end in self.acknowledgements if index == partition)
            around = [each for each in times if each >= since]
            gaps += [later - earlier for earlier, later in itertools.pairwise([since, *around])]
        return max(gaps)


class Reader(Watched):
    """A member of a group that commits what it has read, and waits for the answer."""

    def __init__(self, topic: str, history: History, group: str) -> None:
        super().__init__()
        self.topic = topic
        self.group = group
        self.name = f"{group}-{next(_ids)}"
        self._history = history
        self._began: dict[int, float] = {}
        self.read = 0
        self.commits = 0
        self.errors: Counter[int] = Counter()
        """How often each error was told of in place of a record."""

    def began(self, partition: int, at: float) -> None:
        """Note that a partition was assigned: reading begins where the group has committed."""
        self._began[partition] = at

    def saw(self, partition: int, offset: int, value: str) -> None:
        """Note one record."""
        asked = self._began.pop(partition, None)
        if asked is not None:
            self._step(partition, offset, Step.SEEN, time.monotonic(), asked)
        self._history.polls.append(
            Poll((self.topic, partition), self.name, offset, value, fresh=asked is not None)
        )
        self.read += 1

    def committing(self, partition: int, offset: int, at: float) -> None:
        """Note that a commit is about to be sent."""
        self._step(partition, offset, Step.SENT, at)

    def committed(self, partition: int, offset: int, at: float) -> None:
        """Note that a commit was acknowledged."""
        self._step(partition, offset, Step.ACKNOWLEDGED, at)
        self.commits += 1

    def _step(self, partition: int, offset: int, step: Step, at: float, asked: float = 0.0) -> None:
        place = (self.topic, partition)
        self._history.group_offsets.append(GroupOffset(self.group, place, offset, step, at, asked))

    def wait_for_more(self, count: int = 100) -> None:
        goal = self.read + count
        self.until(lambda: self.read >= goal, f"{count} more records read")

    def wait_for_commits(self, count: int = 3) -> None:
        goal = self.commits + count
        self.until(lambda: self.commits >= goal, f"{count} more commits")


class Sender(Writer):
    """librdkafka, idempotent, acks=all."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        history: History,
        name: str,
        partitions: int = 1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(topic, history, name, partitions)
        self.producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 50,
                "message.timeout.ms": int(PATIENCE_S * 1000),
                "request.timeout.ms": 5_000,
                **(settings or {}),
            }
        )

    def run(self) -> None:
        for number in itertools.count():
            if self.stopped.is_set():
                break
            self._produce(self.sending(number), time.monotonic())
            self.producer.poll(0.002)
        self.producer.flush(PATIENCE_S + 10)

    def _produce(self, send: Send, sent: float) -> None:
        def tell(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                # None: an acknowledgement of what came after it told of this one.
                self.told(send, -1 if offset is None else offset, sent)
            else:
                self.failures.append(error)
                if error.code() not in UNCERTAIN:
                    send.outcome = Outcome.REFUSED

        self.producer.produce(
            self.topic, str(send.value), partition=send.partition[1], on_delivery=tell
        )


class Member(Reader):
    """librdkafka with commits by hand."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        history: History,
        group: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(topic, history, group)
        self._consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 1_000,
                **(settings or {}),
            }
        )

    def run(self) -> None:
        self._consumer.subscribe([self.topic], on_assign=self._assigned)
        while not self.stopped.is_set():
            positions: dict[int, int] = {}
            for message in self._consumer.consume(500, 0.1):
                error = message.error()
                if error is not None:
                    self.errors[error.code()] += 1
                else:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    self.saw(partition, offset, (message.value() or b"").decode())
                    positions[partition] = offset + 1
            if positions:
                self._commit(positions)
        self._consumer.close()

    def _assigned(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            self.began(each.partition, time.monotonic())

    def _commit(self, positions: dict[int, int]) -> None:
        for each in positions.items():
            self.committing(*each, time.monotonic())
        wanted = [TopicPartition(self.topic, *each) for each in positions.items()]
        try:
            told = self._consumer.commit(offsets=wanted, asynchronous=False) or []
        except KafkaException:
            return
        for each in told:
            if each.error is None:
                self.committed(each.partition, each.offset, time.monotonic())


class Asker(Watched):
    """Asks what a group has committed, as an operator or a monitor does."""

    def __init__(
        self, bootstrap: str, topic: str, history: History, group: str, partitions: int = 1
    ) -> None:
        super().__init__()
        self._history = history
        self._group = group
        self._places = [TopicPartition(topic, index) for index in range(partitions)]
        self._consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
            }
        )
        self.answers = 0

    def run(self) -> None:
        steps = self._history.group_offsets
        while not self.stopped.wait(0.05):
            asked = time.monotonic()
            try:
                told = self._consumer.committed(self._places, timeout=5)
            except KafkaException:
                continue
            for each in told:
                if each.error is None:
                    place = (each.topic, each.partition)
                    offset = max(0, each.offset)
                    steps.append(
                        GroupOffset(self._group, place, offset, Step.SEEN, time.monotonic(), asked)
                    )
                    self.answers += 1
        self._consumer.close()


def read_all(
    bootstrap: str,
    topic: str,
    history: History,
    process: str,
    partitions: int = 1,
    isolation: str = "read_uncommitted",
    settings: Mapping[str, Any] | None = None,
) -> dict[tuple[str, int], dict[int, str]]:
    """Read partitions to their end, as a consumer that the history takes down."""
    consumer = Consumer(
        {
            **QUICK,
            "bootstrap.servers": bootstrap,
            "group.id": process,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            **(settings or {}),
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: dict[tuple[str, int], dict[int, str]] = {
        (topic, index): {} for index in range(partitions)
    }
    open_ones = set(range(partitions))
    deadline = time.monotonic() + PATIENCE_S
    try:
        while open_ones:
            assert time.monotonic() < deadline, f"{topic}: no end of {open_ones}"
            for message in consumer.consume(2_000, 0.2):
                error, partition = message.error(), message.partition() or 0
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        open_ones.discard(partition)
                    continue
                offset, value = message.offset() or 0, (message.value() or b"").decode()
                found[topic, partition][offset] = value
                history.polls.append(Poll((topic, partition), process, offset, value))
    finally:
        consumer.close()
    return found


def anomalies(
    bootstrap: str,
    topic: str,
    history: History,
    partitions: int = 1,
    isolation: str = "read_uncommitted",
    settings: Mapping[str, Any] | None = None,
) -> list[Anomaly]:
    """Read everything in the end and return what is wrong."""
    reader = f"last-reader-of-{topic}"
    final = read_all(bootstrap, topic, history, reader, partitions, isolation, settings)
    return judge(history, {place: dict(values) for place, values in final.items()})
