"""The result of a coordinator's operation: a response, records to persist, responses to parked
requests, and requests to other brokers.

Theory of operation (Kafka: ``CoordinatorRuntime``, ``CoordinatorResult``):

* **plan**: an operation reads the state and returns a :class:`Result`. It does not change state
  that is in the log; it may change state that is only in memory (parked requests, sessions).
* **persist**: the driver appends the result's records to the coordinator's partition.
* **apply**: ``replay`` changes the state from the records; loading after a restart is the same
  call. A result with ``replay=False`` describes state that the operation has already changed in
  memory.

No response and no request is sent before every record it may depend on is committed. When an append
fails, the driver discards the state and loads it again from the log; requests that were not sent by
then are dropped, and ``on_loaded`` returns them again if the log says that they are due.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar, cast

from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.message import Message, Request, Response
from millstream.records.control import ControlType, EndTransactionMarker, MarkerBatch

log = logging.getLogger(__name__)

R = TypeVar("R")
A = TypeVar("A")

_TYPE_BYTES = 2


@dataclass(slots=True, unsafe_hash=True)
class Instant:
    """A time on both clocks: ``wall_ms`` goes into records, ``monotonic_ms`` into deadlines."""

    wall_ms: int
    monotonic_ms: float


@dataclass(slots=True)
class CoordinatorRecord:
    """A key and its new value; ``value`` None is a tombstone. Immutable.

    ``key_type`` is the int16 before the key, ``value_version`` the one before the value.
    ``meaning`` is the state that replay reads in ``value``, where whoever made the record had it at
    hand, and ``encoded_key`` the bytes of type and key; None says nothing.
    """

    key_type: int
    key: Message
    value_version: int = 0
    value: Message | None = None
    meaning: object = field(default=None, repr=False, compare=False)
    encoded_key: bytes | None = field(default=None, repr=False, compare=False)
    _encoded: tuple[bytes, bytes | None] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def encode(self) -> tuple[bytes, bytes | None]:
        """Return the bytes of the record's key and value in the log."""
        if self._encoded is None:
            key = self.encoded_key
            if key is None:
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


@dataclass(slots=True, unsafe_hash=True)
class Answer:
    """A response or a KafkaError for a request, and the Deferred that its handler awaits.

    What a callback of the handler raises is logged: whatever is to be sent after this answer, and
    the coordinator's state, does not depend on it.
    """

    reply: Deferred[object]
    response: object

    def send(self) -> None:
        """Complete the handler's Deferred with the response."""
        self._settle(self.response)

    def refuse(self, error: KafkaError) -> None:
        """Fail the handler's Deferred with an error."""
        self._settle(error)

    def _settle(self, response: object) -> None:
        assert not self.reply.done, "a request is answered once"
        try:
            if isinstance(response, KafkaError):
                self.reply.fail(response)
            else:
                self.reply.complete(response)
        except Exception:
            log.exception("a request of a coordinator could not be answered")


Event: TypeAlias = Callable[["Response | KafkaError", Instant], "Result[None]"]
"""An operation that handles the outcome of an outbound request: its response, or the error
(BROKER_NOT_AVAILABLE: it was not sent; NETWORK_EXCEPTION, REQUEST_TIMED_OUT, UNKNOWN_SERVER_ERROR:
the outcome is unknown).
"""


Continuation: TypeAlias = Callable[[Instant], "Result[None]"]
"""An operation that goes on with what a result has begun, once its records are committed."""


@dataclass(slots=True, unsafe_hash=True)
class OutboundRequest:
    """A request that a coordinator sends to a broker (Kafka: ``TransactionMarkerChannelManager``).

    It is sent once the records of its result are committed. ``event`` is run on the same state
    machine when it is answered or has failed; it is dropped where the state machine has ended or
    was loaded again meanwhile. The request has to carry an epoch by which the receiver can refuse
    requests of an older coordinator.
    """

    target: BrokerId
    request: Request
    timeout_ms: int
    event: Event


TaskEvent: TypeAlias = Callable[[object, Instant], "Result[None]"]
"""An operation that handles what a background task returned, or the MillstreamError it raised."""


@dataclass(frozen=True, slots=True)
class BackgroundTask:
    """Work that would take the loop too long: a pure function, run by a worker (Kafka:
    ``CoordinatorExecutor``).

    ``event`` is run on the same state machine with what it returns; it is dropped where the state
    machine has ended or was loaded again meanwhile.
    """

    work: Callable[[], object]
    event: TaskEvent


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic that was created, deleted, or changed: it has more partitions, or replicas on other
    brokers.
    """

    name: str
    topic_id: TopicId
    deleted: bool
    created: bool = False


@dataclass(slots=True, unsafe_hash=True)
class TransactionProducer:
    """The producer in whose transaction records are written."""

    producer_id: int
    producer_epoch: int


@dataclass(slots=True, unsafe_hash=True)
class TransactionEnd:
    """The marker that ends a producer's transaction, as WriteTxnMarkers names it."""

    producer: TransactionProducer
    committed: bool
    coordinator_epoch: int
    transaction_version: int

    def marker_batch(self, timestamp_ms: int) -> MarkerBatch:
        """Return the control batch of the marker."""
        return MarkerBatch.of(
            EndTransactionMarker(
                ControlType.COMMIT if self.committed else ControlType.ABORT,
                self.coordinator_epoch,
            ),
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            timestamp_ms=timestamp_ms,
        )


EndedPartitions: TypeAlias = "tuple[TransactionEnd, Mapping[str, Collection[int]]]"
"""A marker, and the partitions by topic that it is written into."""

MarkerCodes: TypeAlias = "Mapping[str, Mapping[int, int]]"
"""Error codes by topic and partition: how the writes of one marker have ended."""


@dataclass(slots=True, unsafe_hash=True)
class LocalMarkers:
    """Markers for partitions that this broker leads itself: written as WriteTxnMarkers has them
    written, but without a request.

    That happens as with an :class:`OutboundRequest`, in a later pass of the loop: whoever waits for
    the decision is answered first. ``event`` is given the codes of each marker.
    """

    ends: Sequence[EndedPartitions]
    timeout_ms: int
    event: Callable[[Sequence[MarkerCodes], Instant], Result[None]]


class Result(Generic[R]):
    """The outcome of one operation.

    ``response`` is for the request itself; None if the request is parked and answered later.
    ``answers`` are for requests that were parked before. ``records`` go into one batch, all or
    none, unless ``atomic`` is False (tombstones may be many). ``outbound`` is sent, and
    ``when_committed`` is run on the same state machine, once the records are committed. Records
    with a ``producer`` are part of its transaction: they are replayed with its id, and count when
    its marker says so. ``tasks`` are begun at once. ``is_urgent`` False: nobody waits for the
    records, and what they say is found out again if they are lost, so they may wait a little for
    others to share a batch with.
    """

    __slots__ = (
        "answers",
        "atomic",
        "is_urgent",
        "outbound",
        "producer",
        "records",
        "replay",
        "response",
        "tasks",
        "when_committed",
    )

    def __init__(
        self,
        response: R | None = None,
        records: list[CoordinatorRecord] | None = None,
        *,
        answers: list[Answer] | None = None,
        outbound: list[OutboundRequest | LocalMarkers] | None = None,
        tasks: list[BackgroundTask] | None = None,
        replay: bool = True,
        atomic: bool = True,
        is_urgent: bool = True,
    ) -> None:
        # Written out: every request makes one, and what a dataclass generates takes twice as long.
        self.response = response
        self.records: list[CoordinatorRecord] = [] if records is None else records
        self.answers: list[Answer] = [] if answers is None else answers
        self.outbound: list[OutboundRequest | LocalMarkers] = [] if outbound is None else outbound
        self.when_committed: list[Continuation] = []
        self.tasks: list[BackgroundTask] = [] if tasks is None else tasks
        self.replay = replay
        self.atomic = atomic
        self.producer: TransactionProducer | None = None
        self.is_urgent = is_urgent

    def answer(self, reply: Deferred[A], response: A) -> None:
        """Add the response to a parked request."""
        self.answers.append(Answer(cast("Deferred[object]", reply), response))

    def refuse(self, reply: Deferred[A], error: KafkaError) -> None:
        """Add an error as the response to a request."""
        self.answers.append(Answer(cast("Deferred[object]", reply), error))

    def settled(self, record: CoordinatorRecord) -> None:
        """Add a record of state that is already changed in memory."""
        assert self.replay is False or not self.records, "one result does not mix both kinds"
        self.replay = False
        self.records.append(record)


def split_type(encoded: bytes) -> tuple[int, bytes]:
    """Return the int16 in front of a stored key or value, and the rest of it."""
    return int.from_bytes(encoded[:_TYPE_BYTES], "big", signed=True), encoded[_TYPE_BYTES:]
