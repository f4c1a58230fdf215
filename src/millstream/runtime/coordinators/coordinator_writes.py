"""The writes of one coordinator shard: batches in order, a round of them on its way, and what waits
for them.

What comes in one pass of the loop, and all that comes while a round is on its way to be committed,
makes the next round (group commit). Its records share a batch, but for those of transactions: a
batch has one producer, and a marker is one by itself. The batches of a round are appended one after
the other and committed together. An answer held here leaves when the batch that was the newest
then is committed; see ``docs/decisions/0003-answers-wait-for-their-records.md``. An answer leaves
under the leader's lease only, and is NOT_COORDINATOR without it: the lease may have ended while the
answer waited (``docs/decisions/0068-what-a-coordinator-may-answer.md``).

Records that nobody waits for (`is_urgent` False) wait up to `LINGER_MS` for others to share a batch
with, or for an answer that may rest on them. So the end of a transaction shares the batch of the
next one's beginning.

A batch that is refused because too few replicas are in sync was not written. It stays on its way
and is appended again until it is taken, so that memory needs no loading; what follows it waits in
the queue, and whoever waits for any of them is refused at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from millstream.coordinator.result import (
    Answer,
    Continuation,
    LocalMarkers,
    OutboundRequest,
    TransactionEnd,
    TransactionProducer,
)
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.model.producer import NO_SEQUENCE
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.replicas.committed_appends import append_internal, append_marker
from millstream.runtime.replicas.partition import Partition
from millstream.storage.producer_state import EPOCH_BUMPED_FROM, VerificationState

Encoded: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record as they stand in the log."""

APPEND_AGAIN_MS: Final = 500.0
"""How long after a refusal a batch that too few replicas would have had is appended again."""

LINGER_MS: Final = 20.0
"""How long records that nobody waits for are kept for others to share their batch."""

_RECORD_BYTES: Final = 32
"""More than the lengths and deltas of one record take."""


COORDINATOR_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What the clients of a coordinator hear when its partition refuses."""


def coordinator_error(error: KafkaError) -> KafkaError:
    """Return what the clients of a coordinator hear for an error of its partition."""
    return KafkaError(COORDINATOR_ERRORS.get(error.error, error.error), error.message)


@dataclass(frozen=True, slots=True)
class Verification:
    """What was learnt of a transaction before a write into it: ``state`` as
    ``TransactionVerification.begin`` has answered; nothing is checked where it is not required.
    """

    state: VerificationState | None
    is_required: bool


class _Write:
    """A batch, and the answers, requests and continuations that wait for it. One with a
    ``producer`` belongs to its transaction; with ``end`` it is the marker that ends it. Nobody
    waits for one that is not ``is_urgent``.
    """

    __slots__ = (
        "answers",
        "builder",
        "continuations",
        "end",
        "is_urgent",
        "outbound",
        "producer",
    )

    def __init__(
        self,
        builder: BatchBuilder,
        producer: TransactionProducer | None = None,
        end: TransactionEnd | None = None,
        *,
        is_urgent: bool = True,
    ) -> None:
        self.builder = builder
        self.producer = producer
        self.end = end
        self.is_urgent = is_urgent
        self.answers: list[Answer] = []
        self.outbound: list[OutboundRequest | LocalMarkers] = []
        self.continuations: list[Continuation] = []


class CoordinatorWrites:
    """Appends batches to a partition.

    ``on_failed`` is called once with why an append failed; then the queue must be abandoned.
    ``on_stuck`` is called whenever ``is_stuck`` has changed. ``send_request`` sends what an
    operation has asked for once its records are committed, and ``go_on`` runs what it has left to
    be done then.
    """

    def __init__(
        self,
        partition: Partition,
        options: BatchOptions,
        *,
        clock: Clock,
        commit_timeout_ms: int,
        on_failed: Callable[[KafkaError], None],
        on_stuck: Callable[[], None],
        send_request: Callable[[OutboundRequest | LocalMarkers], None],
        go_on: Callable[[Continuation], None],
    ) -> None:
        self.is_stuck = False
        """A batch was not committed in time, or not taken; nothing should be begun until it is."""
        self._partition = partition
        self._options = options
        self._clock = clock
        self._commit_timeout_ms = commit_timeout_ms
        self._on_failed = on_failed
        self._on_stuck = on_stuck
        self._send_request = send_request
        self._go_on = go_on
        self._in_flight: deque[_Write] = deque()
        """The batches of the round that are not committed yet; only the last may not be in the log,
        where too few replicas would have had it."""
        self._in_flight_since_ms = 0.0
        self._is_flushing = False
        self._queue: deque[_Write] = deque()
        self._newest_of: dict[int, _Write] = {}
        """By producer id, the newest batch in the queue that is the producer's."""
        self._flush_scheduled = False
        self._lingering = False
        self._watching = False

    @property
    def is_settled(self) -> bool:
        """True while everything that was added is committed, but for what nobody waits for: what
        may be said does not rest on that.
        """
        if self._in_flight:
            return False
        return not self._queue or not any(write.is_urgent for write in self._queue)

    def add(
        self,
        records: Sequence[Encoded],
        producer: TransactionProducer | None = None,
        *,
        is_limited: bool = True,
        is_urgent: bool = True,
    ) -> bool:
        """Put records into one batch, to be appended at the end of this pass of the loop, or later
        if that is not ``is_urgent``. A batch has the records of one producer's transaction, or of
        none. False, and nothing is done, where one batch cannot hold them, unless that is not
        ``is_limited``.
        """
        size = HEADER_SIZE  # a bound for what they take in a batch
        for key, value in records:
            size += _RECORD_BYTES + len(key) + (0 if value is None else len(value))
        limit = self._partition.config.max_message_bytes
        if size > limit and is_limited:
            return False
        newest = self._queue[-1] if self._queue else None
        if (
            newest is None
            or newest.producer != producer
            or newest.end is not None
            or newest.builder.size + size > limit
        ):
            options = _with_producer(self._options, producer)
            newest = _Write(BatchBuilder(options), producer, is_urgent=is_urgent)
            self._enqueue(newest)
        timestamp_ms = self._clock.now_ms()
        for key, value in records:
            newest.builder.append(timestamp_ms, key, value)
        if is_urgent:
            newest.is_urgent = True
            self._schedule_flush()
        elif not self._lingering:
            self._lingering = True
            self._clock.call_later(LINGER_MS, self._end_linger)
        return True

    def add_end(self, end: TransactionEnd) -> None:
        """Put the marker that ends a transaction into the queue, once :meth:`check_end` has passed
        it.
        """
        self._enqueue(_Write(BatchBuilder(self._options), end.producer, end))
        self._schedule_flush()

    def check_end(self, end: TransactionEnd) -> None:
        """Raise the KafkaError with which the log would refuse a marker behind all that is queued:
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = end.producer
        newest = self._newest_of.get(producer.producer_id)
        if newest is not None and newest.producer is not None:
            is_open = newest.end is None
            bumped = end.transaction_version >= EPOCH_BUMPED_FROM and is_open
            if producer.producer_epoch < newest.producer.producer_epoch + bumped:
                raise _fenced(producer)
            if newest.end is not None and end.coordinator_epoch < newest.end.coordinator_epoch:
                raise KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        if newest is None or newest.end is None:
            self._partition.log.producers.state.check_marker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=end.coordinator_epoch,
                transaction_version=end.transaction_version if newest is None else 0,
            )

    def check_transactional(self, producer: TransactionProducer, verified: Verification) -> None:
        """Raise the KafkaError with which the log would refuse a transactional batch behind all
        that is queued: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE.
        """
        newest = self._newest_of.get(producer.producer_id)
        if newest is not None and newest.producer is not None:
            if producer.producer_epoch < newest.producer.producer_epoch:
                raise _fenced(producer)
            if newest.end is None and producer == newest.producer:
                return  # it goes on with what is queued
        producers = self._partition.log.producers.state
        if not verified.is_required:
            # The log refuses no batch of a coordinator: that would cost it its state.
            if newest is None:
                producers.check_epoch(producer.producer_id, producer.producer_epoch)
            return
        if newest is None or newest.end is None:
            producers.check_verified(
                producer.producer_id,
                producer.producer_epoch,
                NO_SEQUENCE,
                verified.state,
                bumps_epoch=False,
            )
        else:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "its transaction is being ended")

    def _enqueue(self, write: _Write) -> None:
        self._queue.append(write)
        if write.producer is not None:
            self._newest_of[write.producer.producer_id] = write

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled and not self._in_flight:
            self._flush_scheduled = True
            self._clock.call_soon(self._flush)

    def send(
        self,
        answers: Sequence[Answer],
        outbound: Sequence[OutboundRequest | LocalMarkers] = (),
        continuations: Sequence[Continuation] = (),
    ) -> None:
        """Send answers and requests, and run continuations, once everything added so far is
        committed: now, if it is.
        """
        waiting = self._queue or self._in_flight
        if waiting:
            if not (answers or outbound or continuations):
                return
            newest = waiting[-1]
            if not newest.is_urgent:
                newest.is_urgent = True
                self._schedule_flush()
            newest.answers += answers
            newest.outbound += outbound
            newest.continuations += continuations
        else:
            self._release(answers, outbound, continuations)

    def _release(
        self,
        answers: Sequence[Answer],
        outbound: Sequence[OutboundRequest | LocalMarkers],
        continuations: Sequence[Continuation],
    ) -> None:
        refusal = self._partition.refusal_to_answer()
        for answer in answers:
            if refusal is None:
                answer.send()
            else:
                answer.refuse(coordinator_error(refusal))
        for request in outbound:
            self._send_request(request)
        for continuation in continuations:
            self._go_on(continuation)

    def hold_until_committed(self, end: Offset) -> None:
        """Let answers wait until what the log holds below ``end`` is committed."""
        write = _Write(BatchBuilder(self._options))
        self._in_flight.append(write)
        self._in_flight_since_ms = self._clock.monotonic_ms()

        def settle(error: KafkaError | None) -> None:
            self._settle(write, error)

        self._partition.wait_for_commit(end - 1, settle)
        if write in self._in_flight:
            self._watch(self._commit_timeout_ms)

    def abandon(self, error: KafkaError) -> None:
        """Forget every batch, refuse the answers that wait and send no request."""
        self._refuse_all(error)
        self._in_flight.clear()
        self._queue.clear()
        self._newest_of.clear()
        self.is_stuck = False

    def _end_linger(self) -> None:
        self._lingering = False
        if self._queue:
            self._schedule_flush()

    def _flush(self) -> None:
        """Append what is in the queue, unless a round is on its way."""
        self._flush_scheduled = False
        if self._in_flight or self._is_flushing:
            return
        self._is_flushing = True
        self._in_flight_since_ms = self._clock.monotonic_ms()
        try:
            # What is committed at once may have answers that add to the queue: not to this round.
            for _ in range(len(self._queue)):
                if not self._queue or not self._append_oldest():
                    break
        finally:
            self._is_flushing = False
            if self._queue:
                self._schedule_flush()

    def _append_oldest(self) -> bool:
        """Append the oldest batch of the queue; tell whether it was taken."""
        write = self._queue.popleft()
        if write.producer is not None and self._newest_of[write.producer.producer_id] is write:
            del self._newest_of[write.producer.producer_id]
        self._in_flight.append(write)
        return self._append(write)

    def _append(self, write: _Write) -> bool:
        end = write.end
        if end is None:
            appended = append_internal(self._partition, write.builder.build())
        else:
            appended = append_marker(
                self._partition,
                end.marker_batch(self._clock.now_ms()),
                transaction_version=end.transaction_version,
            )
        if appended.done:
            return self._appended(write, appended)
        self._watch(self._commit_timeout_ms)

        def settle(outcome: Deferred[Offset]) -> None:
            self._appended(write, outcome)

        appended.on_done(settle)
        return True

    def _appended(self, write: _Write, outcome: Deferred[Offset]) -> bool:
        """Take note of how an append has ended; tell whether the batch is in the log."""
        try:
            outcome.result()
        except KafkaError as error:
            self._settle(write, error)
            return error.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        self._settle(write, None)
        return True

    def _append_again(self, write: _Write) -> None:
        if write in self._in_flight:
            self._in_flight_since_ms = self._clock.monotonic_ms()
            self._append(write)

    def _settle(self, write: _Write, error: KafkaError | None) -> None:
        if write not in self._in_flight:
            return  # abandoned meanwhile
        if error is not None and error.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            # It is written and committed, on fewer replicas than whoever waits for it has asked
            # for.
            for answer in write.answers:
                answer.refuse(coordinator_error(error))
            write.answers = []
            error = None
        if error is not None:
            if error.error is ErrorCode.NOT_ENOUGH_REPLICAS:
                self._clock.call_later(APPEND_AGAIN_MS, lambda: self._append_again(write))
                self._stick(coordinator_error(error))
            else:
                self._on_failed(error)
            return
        self._in_flight.remove(write)
        if not self._in_flight:
            was_stuck, self.is_stuck = self.is_stuck, False
            if self._queue:
                self._flush()
            if was_stuck:
                self._on_stuck()
        self._release(write.answers, write.outbound, write.continuations)

    def _watch(self, delay_ms: float) -> None:
        """See to it that a round is not waited for beyond the time-out.

        One timer watches over one round after the other, so that a batch costs none.
        """
        if not self._watching:
            self._watching = True
            self._clock.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._watching = False
        if not self._in_flight:
            return
        waited_ms = self._clock.monotonic_ms() - self._in_flight_since_ms
        if waited_ms < self._commit_timeout_ms:
            self._watch(max(1.0, self._commit_timeout_ms - waited_ms))
            return
        self._stick(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed in time"))

    def _stick(self, error: KafkaError) -> None:
        """Begin nothing until what is on its way is committed; refuse who waits for it."""
        self.is_stuck = True
        self._refuse_all(error)
        self._on_stuck()

    def _refuse_all(self, error: KafkaError) -> None:
        for write in (*self._in_flight, *self._queue):
            answers, write.answers = write.answers, []
            for answer in answers:
                answer.refuse(error)


def _with_producer(options: BatchOptions, producer: TransactionProducer | None) -> BatchOptions:
    if producer is None:
        return options
    return replace(
        options,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        is_transactional=True,
    )


def _fenced(producer: TransactionProducer) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {producer.producer_epoch} of producer {producer.producer_id} is over",
    )
