"""What a coordinator's operation decides: an answer, records to persist, answers for others, and
requests to other brokers.

Theory of operation (Kafka: ``CoordinatorRuntime``, ``CoordinatorResult``):

* **plan**: an operation looks at the state and returns a :class:`Result`. It changes nothing that
  is in the log; what only lives in memory (who waits, who has a session) it may change.
* **persist**: the driver appends the result's records to the coordinator's partition.
* **apply**: ``replay`` changes the state from the records; loading after a restart is the same
  call. A result with ``replay=False`` describes memory that the operation has settled already.

No answer leaves, and no request is sent, before every record it may rest on is committed. When an
append fails, the driver throws the memory away and loads it again from the log; a request that was
not sent then is not sent any more, and ``on_loaded`` asks for it again if the log says that it is
owed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar, cast

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.message import Message, Request, Response

R = TypeVar("R")
A = TypeVar("A")

_TYPE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks: ``wall_ms`` goes into records, ``monotonic_ms`` into deadlines."""

    wall_ms: int
    monotonic_ms: float


@dataclass(slots=True)
class CoordinatorRecord:
    """A key and what it now stands for; ``value`` None is a tombstone. Not to be changed.

    ``key_type`` is the int16 before the key, ``value_version`` the one before the value.
    """

    key_type: int
    key: Message
    value_version: int = 0
    value: Message | None = None
    _encoded: tuple[bytes, bytes | None] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the bytes of the record's key and value as they stand in the log."""
        if self._encoded is None:
            key = self.key_type.to_bytes(_TYPE_BYTES, "big") + self.key.encode_body(0)
            value = None
            if self.value is not None:
                version = self.value_version
                value = version.to_bytes(_TYPE_BYTES, "big") + self.value.encode_body(version)
            self._encoded = key, value
        return self._encoded

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        key, value = self.encode()
        return len(key) + len(value or b"")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request gets, a response or a KafkaError, and the cell that its handler waits on."""

    reply: Deferred[object]
    response: object

    def send(self) -> None:
        """Give the response to the handler."""
        if isinstance(self.response, KafkaError):
            self.reply.fail(self.response)
        else:
            self.reply.complete(self.response)

    def refuse(self, error: KafkaError) -> None:
        """Give the handler an error in place of the response."""
        self.reply.fail(error)


Event: TypeAlias = Callable[["Response | KafkaError", Instant], "Result[None]"]
"""An operation that takes what became of an outbound request: its response, or why there is none
(BROKER_NOT_AVAILABLE: it was not sent; NETWORK_EXCEPTION, REQUEST_TIMED_OUT: nobody knows)."""


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """A request that a coordinator sends to a broker (Kafka: ``TransactionMarkerChannelManager``).

    It is sent once the records of its result are committed. ``event`` is run on the same state
    machine when it is answered or has failed; it is dropped where the state machine has ended or
    was loaded again meanwhile. The receiver must be able to tell a request of an older coordinator
    by an epoch that the request carries.
    """

    target: BrokerId
    request: Request
    timeout_ms: int
    event: Event


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What became of a topic: it was created, or deleted."""

    name: str
    topic_id: TopicId
    deleted: bool


@dataclass(slots=True)
class Result(Generic[R]):
    """The outcome of one operation.

    ``response`` answers the request that asked; None when its answer comes later through the
    reply it parked. ``answers`` go to requests that waited. ``records`` go into one batch, all or
    none, unless ``atomic`` is False (tombstones may be many). ``outbound`` is sent once the records
    are committed.
    """

    response: R | None = None
    records: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    outbound: list[OutboundRequest] = field(default_factory=list)
    replay: bool = True
    atomic: bool = True

    def answer(self, reply: Deferred[A], response: A) -> None:
        """Add the response to a request that waits."""
        self.answers.append(Answer(cast("Deferred[object]", reply), response))

    def refuse(self, reply: Deferred[A], error: KafkaError) -> None:
        """Add an error as the answer to a request."""
        self.answers.append(Answer(cast("Deferred[object]", reply), error))

    def settled(self, record: CoordinatorRecord) -> None:
        """Add a record of what memory already holds."""
        assert self.replay is False or not self.records, "one result does not mix both kinds"
        self.replay = False
        self.records.append(record)


def split_type(encoded: bytes) -> tuple[int, bytes]:
    """Return the int16 in front of a stored key or value, and the rest of it."""
    return int.from_bytes(encoded[:_TYPE_BYTES], "big", signed=True), encoded[_TYPE_BYTES:]
