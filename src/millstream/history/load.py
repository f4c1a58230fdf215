"""Clients that write down all that they send, read, commit and are told.

================  =========================================================================
``Sending``       a producer of unique values, one record after the other
``Transacting``   a producer of transactions over all partitions, some of them aborted
``Reading``       a member of a group that commits what it has read, batch by batch
``Asking``        asks again and again what the group has committed, and where partitions end
================  =========================================================================

Each runs on a thread of its own from ``with`` to its end. An outcome is REFUSED only where it is
certain that the record was not written: an error that follows a retry tells nothing of the attempt
before it.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from millstream.client import Admin, Consumer, Producer, RecordMetadata
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.consumer.record import ConsumerRecord
from millstream.client.errors import AuthorizationError, BufferFullError, RecordTooLargeError
from millstream.history.checker import (
    GroupOffset,
    History,
    Outcome,
    Poll,
    Send,
    Step,
)
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.topic import TopicPartition

Settings = Mapping[str, object]

NEVER_WRITTEN: Final = (AuthorizationError, BufferFullError, RecordTooLargeError)
_NEVER_WRITTEN_CODES: Final = frozenset(
    {ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUIRED_ACKS}
)
_POLL_S: Final = 0.2
_ASK_EVERY_S: Final = 0.2
_PAUSE_S: Final = 0.2
_ABORTED_SHARE: Final = 0.3
_END_S: Final = 90.0
"""How long the end of a client may take: as long as what it has sent may be under way."""
_INTERRUPTED_END_S: Final = 5.0
"""The same where Ctrl-C or SIGTERM ends the run."""


@dataclass
class Record:
    """What the clients of one run share, and write down."""

    topic: str
    partitions: int
    group: str
    prefix: str
    """Values of this run begin with it; others in the topic are not looked at."""
    history: History = field(default_factory=History)
    acknowledgements: list[tuple[int, float]] = field(default_factory=list)
    """Partition and time of each."""
    ends: list[tuple[tuple[str, int], int]] = field(default_factory=list)
    """High watermarks, in the order in which they were told."""
    transactions: list[list[Send]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def place(self, partition: int) -> tuple[str, int]:
        """Return a partition of the topic."""
        return self.topic, partition

    def sending(self, process: str, number: int, partition: int, *, once: bool) -> Send:
        """Note that a value is about to be sent."""
        value = f"{self.prefix}{process}:{number}:{partition}"
        send = Send(self.place(partition), value, process, durable=True, once=once)
        with self.lock:
            return self.history.send(send)

    def acknowledged(self, send: Send, offset: int) -> None:
        """Note that a value was acknowledged."""
        send.outcome, send.offset = Outcome.ACKNOWLEDGED, offset
        self.acknowledgements.append((send.partition[1], time.monotonic()))

    def failed(self, about: str, error: BaseException) -> None:
        """Note an error, for the report."""
        self.errors.append(f"{about}: {type(error).__name__}: {error}")

    def is_own(self, value: str) -> bool:
        """Tell whether a value was written by this run."""
        return value.startswith(self.prefix)


class Client(ABC):
    """A thread that works until it is stopped; an error of its own ends up in ``broken``."""

    def __init__(self, name: str, record: Record) -> None:
        self.name = name
        self.record = record
        self.stopped = threading.Event()
        self.broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopped.set()
        is_interrupted = kind is not None and not issubclass(kind, Exception)
        self._thread.join(_INTERRUPTED_END_S if is_interrupted else _END_S + 30)
        if self._thread.is_alive() and self.broken is None:
            self.broken = TimeoutError(f"{self.name} does not come to its end")

    def _run(self) -> None:
        while not self.stopped.is_set():
            try:
                self.work()
            except MillstreamError as error:  # a fault that the client could not sit out
                self.record.failed(self.name, error)
                self.stopped.wait(_PAUSE_S)
            except BaseException as error:
                self.broken = error
                return

    @abstractmethod
    def work(self) -> None:
        """Do what the client does until ``stopped``; called again after an error of the client."""


def text_of(value: bytes | None) -> str:
    """Return a value as it was sent, or what others wrote as far as it is text."""
    return (value or b"").decode(errors="replace")


def certainly_not_written(error: Exception) -> bool:
    """Tell whether a record that failed so is in no log."""
    if isinstance(error, KafkaError) and error.error in _NEVER_WRITTEN_CODES:
        return True
    return isinstance(error, NEVER_WRITTEN)


class Sending(Client):
    """One record after the other, at most ``rate`` a second.

    With ``acks`` 0 nobody acknowledges anything: every outcome stays unknown.
    """

    def __init__(
        self, name: str, record: Record, settings: Settings, rate: float, *, once: bool
    ) -> None:
        super().__init__(name, record)
        self._settings = settings
        self._rate = rate
        self._once = once
        self._is_answered = str(settings.get("acks", "all")) != "0"
        self._numbers = itertools.count()

    def work(self) -> None:
        """Send, one record after the other."""
        began = time.monotonic()
        with Producer(self._settings) as producer:
            for sent in itertools.count():
                ahead = sent / self._rate - (time.monotonic() - began)
                if self.stopped.wait(max(ahead, 0)):
                    break
                number = next(self._numbers)
                partition = number % self.record.partitions
                send = self.record.sending(self.name, number, partition, once=self._once)
                try:
                    producer.send(
                        self.record.topic,
                        str(send.value),
                        partition=partition,
                        on_delivery=self._teller(send),
                    )
                except MillstreamError as error:
                    if certainly_not_written(error):
                        send.outcome = Outcome.REFUSED
                    raise
            producer.flush(_END_S)

    def _teller(self, send: Send) -> Callable[[RecordMetadata | None, Exception | None], None]:
        def tell(metadata: RecordMetadata | None, error: Exception | None) -> None:
            if error is not None:
                self.record.failed(self.name, error)
                if certainly_not_written(error):
                    send.outcome = Outcome.REFUSED
            elif metadata is not None and self._is_answered:
                self.record.acknowledged(send, metadata.offset)

        return tell


class Transacting(Client):
    """Transactions with a record in each partition, at most ``rate`` records a second.

    One whose commit was asked for and not answered is unknown; one whose commit was never asked for
    must never be read as committed.
    """

    def __init__(self, name: str, record: Record, settings: Settings, rate: float) -> None:
        super().__init__(name, record)
        self._settings = {**settings, "transactional.id": f"{record.prefix}{name}"}
        self._pause_s = record.partitions / rate
        self._chance = random.Random(name)
        self._numbers = itertools.count()
        self.committed = 0
        self.aborted = 0
        self.unknown = 0

    def work(self) -> None:
        """Make transactions, one after the other."""
        with Producer(self._settings) as producer:
            producer.init_transactions()
            while not self.stopped.wait(self._pause_s):
                self._one(producer)

    def _one(self, producer: Producer) -> None:
        number = next(self._numbers)
        aborts = self._chance.random() < _ABORTED_SHARE
        producer.begin_transaction()
        sends = [
            self.record.sending(self.name, number, partition, once=True)
            for partition in range(self.record.partitions)
        ]
        self.record.transactions.append(sends)
        # Until the commit is asked for nobody may ever read them.
        for send in sends:
            send.outcome = Outcome.REFUSED
        futures = [
            producer.send(self.record.topic, str(send.value), partition=send.partition[1])
            for send in sends
        ]
        if aborts:
            producer.abort_transaction()
            self.aborted += 1
            return
        for send in sends:
            send.outcome = Outcome.OPEN
        self.unknown += 1
        producer.commit_transaction()
        for send, future in zip(sends, futures, strict=True):
            self.record.acknowledged(send, future.result().offset)
        self.unknown -= 1
        self.committed += 1


class Reading(Client):
    """A member of the group: reads, notes, commits and waits for the answer."""

    def __init__(
        self, name: str, record: Record, settings: Settings, *, has_markers: bool = False
    ) -> None:
        super().__init__(name, record)
        self._settings = settings
        # Where markers of transactions lie between records, the first one that is read does not
        # tell where the group began.
        self._has_markers = has_markers
        self._began: dict[int, float] = {}
        self.read = 0

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Note where reading begins anew."""
        for each in partitions:
            self._began[each.partition] = time.monotonic()

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing: what was read is committed already."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing: others read them now."""

    def work(self) -> None:
        """Read and commit."""
        with Consumer[bytes, bytes](self._settings) as consumer:
            consumer.subscribe([self.record.topic], listener=self)
            while not self.stopped.is_set():
                records = consumer.poll(_POLL_S)
                for each in records:
                    self._saw(each)
                if records:
                    self._commit(
                        consumer, {each.topic_partition: each.offset + 1 for each in records}
                    )

    def _saw(self, record: ConsumerRecord[bytes, bytes]) -> None:
        partition = record.partition
        asked = self._began.pop(partition, None)
        if asked is not None and not self._has_markers:
            self._step(partition, record.offset, Step.SEEN, asked)
        value = text_of(record.value)
        if self.record.is_own(value):
            self.record.history.polls.append(
                Poll(
                    self.record.place(partition),
                    self.name,
                    record.offset,
                    value,
                    fresh=asked is not None,
                )
            )
            self.read += 1

    def _commit(
        self, consumer: Consumer[bytes, bytes], positions: Mapping[TopicPartition, int]
    ) -> None:
        for each, offset in positions.items():
            self._step(each.partition, offset, Step.SENT)
        try:
            consumer.commit(positions)
        except MillstreamError as error:
            self.record.failed(self.name, error)
            return
        for each, offset in positions.items():
            self._step(each.partition, offset, Step.ACKNOWLEDGED)

    def _step(self, partition: int, offset: int, step: Step, asked: float = 0.0) -> None:
        self.record.history.group_offsets.append(
            GroupOffset(
                self.record.group,
                self.record.place(partition),
                offset,
                step,
                time.monotonic(),
                asked,
            )
        )


class Asking(Client):
    """Asks what the group has committed and where the partitions end, as a monitor does."""

    def __init__(self, record: Record, settings: Settings) -> None:
        super().__init__("asker", record)
        self._settings = settings
        self.answers = 0

    def work(self) -> None:
        """Ask again and again."""
        record = self.record
        places = [TopicPartition(record.topic, each) for each in range(record.partitions)]
        with Admin(self._settings) as admin:
            while not self.stopped.wait(_ASK_EVERY_S):
                asked = time.monotonic()
                committed = admin.list_group_offsets([record.group])[record.group]
                now = time.monotonic()
                # A partition without an offset is one that reads from its beginning.
                for place in places if committed.error is None else ():
                    found = committed.get().get(place)
                    record.history.group_offsets.append(
                        GroupOffset(
                            record.group,
                            record.place(place.partition),
                            0 if found is None else found.offset,
                            Step.SEEN,
                            now,
                            asked,
                        )
                    )
                for place, outcome in admin.list_offsets(dict.fromkeys(places, LATEST)).items():
                    end = outcome.get() if outcome.error is None else None
                    if end is not None:
                        record.ends.append((record.place(place.partition), end.offset))
                self.answers += 1
