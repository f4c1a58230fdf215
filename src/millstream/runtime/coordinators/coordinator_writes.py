"""The writes of one coordinator shard: batches in order, one on its way, and what waits for them.

Records of one pass of the loop, and all that come while a batch is on its way to be committed,
share the next batch (group commit). An answer held here leaves when the batch that was the newest
then is committed; see ``docs/decisions/0003-answers-wait-for-their-records.md``. An answer leaves
under the leader's lease only, and is NOT_COORDINATOR without it: the lease may have ended while the
answer waited (``docs/decisions/0068-what-a-coordinator-may-answer.md``).

A batch that is refused because too few replicas are in sync was not written. It stays the one on
its way and is appended again until it is taken, so that memory needs no loading; whoever waits for
it is refused at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from millstream.coordinator.result import Answer, OutboundRequest
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.replicas.partition import Partition

Encoded: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record as they stand in the log."""

APPEND_AGAIN_MS: Final = 500.0
"""How long after a refusal a batch that too few replicas would have had is appended again."""

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


@dataclass(slots=True)
class _Write:
    """A batch, and the answers and requests that wait for it."""

    builder: BatchBuilder
    answers: list[Answer] = field(default_factory=list)
    outbound: list[OutboundRequest] = field(default_factory=list)


class CoordinatorWrites:
    """Appends batches to a partition.

    ``on_failed`` is called once with why an append failed; then the queue must be abandoned.
    ``on_stuck`` is called whenever ``is_stuck`` has changed. ``send_request`` sends what an
    operation has asked for once its records are committed.
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
        send_request: Callable[[OutboundRequest], None],
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
        self._in_flight: _Write | None = None
        self._in_flight_since_ms = 0.0
        self._queue: deque[_Write] = deque()
        self._flush_scheduled = False
        self._watching = False

    def fits(self, records: Sequence[Encoded]) -> bool:
        """True when one batch can hold the records."""
        return _size(records) <= self._partition.config.max_message_bytes

    def add(self, records: Sequence[Encoded]) -> None:
        """Put records into one batch, to be appended at the end of this pass of the loop."""
        size = _size(records)
        limit = self._partition.config.max_message_bytes
        if not self._queue or self._queue[-1].builder.size + size > limit:
            self._queue.append(_Write(BatchBuilder(self._options)))
        builder = self._queue[-1].builder
        timestamp_ms = self._clock.now_ms()
        for key, value in records:
            builder.append(timestamp_ms, key, value)
        if not self._flush_scheduled and self._in_flight is None:
            self._flush_scheduled = True
            self._clock.call_soon(self._flush)

    def send(self, answers: Sequence[Answer], outbound: Sequence[OutboundRequest] = ()) -> None:
        """Send answers and requests once everything added so far is committed: now, if it is."""
        newest = self._queue[-1] if self._queue else self._in_flight
        if newest is not None:
            newest.answers += answers
            newest.outbound += outbound
        else:
            self._release(answers, outbound)

    def _release(self, answers: Sequence[Answer], outbound: Sequence[OutboundRequest]) -> None:
        refusal = self._partition.refusal_to_answer()
        for answer in answers:
            if refusal is None:
                answer.send()
            else:
                answer.refuse(coordinator_error(refusal))
        for request in outbound:
            self._send_request(request)

    def hold_until_committed(self, end: Offset) -> None:
        """Let answers wait until what the log holds below ``end`` is committed."""
        write = self._begin(_Write(BatchBuilder(self._options)))

        def settle(error: KafkaError | None) -> None:
            self._settle(write, error)

        self._partition.wait_for_commit(end - 1, settle)
        if self._in_flight is write:
            self._watch(self._commit_timeout_ms)

    def abandon(self, error: KafkaError) -> None:
        """Forget every batch, refuse the answers that wait and send no request."""
        self._refuse_all(error)
        self._in_flight = None
        self._queue.clear()
        self.is_stuck = False

    def _flush(self) -> None:
        """Append the oldest batch, unless one is on its way."""
        self._flush_scheduled = False
        if self._in_flight is not None or not self._queue:
            return
        self._append(self._begin(self._queue.popleft()))

    def _append(self, write: _Write) -> None:
        appended = self._partition.append_internal(write.builder.build())
        if not appended.done:
            self._watch(self._commit_timeout_ms)

        def settle(outcome: Deferred[Offset]) -> None:
            try:
                outcome.result()
            except KafkaError as error:
                self._settle(write, error)
            else:
                self._settle(write, None)

        appended.on_done(settle)

    def _append_again(self, write: _Write) -> None:
        if self._in_flight is write:
            self._in_flight_since_ms = self._clock.monotonic_ms()
            self._append(write)

    def _begin(self, write: _Write) -> _Write:
        self._in_flight = write
        self._in_flight_since_ms = self._clock.monotonic_ms()
        return write

    def _settle(self, write: _Write, error: KafkaError | None) -> None:
        if self._in_flight is not write:
            return  # abandoned meanwhile
        if error is not None:
            if error.error is ErrorCode.NOT_ENOUGH_REPLICAS:
                self._clock.call_later(APPEND_AGAIN_MS, lambda: self._append_again(write))
                self._stick(coordinator_error(error))
            else:
                self._on_failed(error)
            return
        self._in_flight = None
        was_stuck, self.is_stuck = self.is_stuck, False
        self._flush()
        if was_stuck:
            self._on_stuck()
        self._release(write.answers, write.outbound)

    def _watch(self, delay_ms: float) -> None:
        """See to it that the batch on its way is not waited for beyond the time-out.

        One timer watches over one batch after the other, so that a batch costs none.
        """
        if not self._watching:
            self._watching = True
            self._clock.call_later(delay_ms, self._look)

    def _look(self) -> None:
        self._watching = False
        if self._in_flight is None:
            return
        waited_ms = self._clock.monotonic_ms() - self._in_flight_since_ms
        if waited_ms < self._commit_timeout_ms:
            self._watch(max(1.0, self._commit_timeout_ms - waited_ms))
            return
        self._stick(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not committed in time"))

    def _stick(self, error: KafkaError) -> None:
        """Begin nothing until the batch on its way is committed; refuse who waits for one."""
        self.is_stuck = True
        self._refuse_all(error)
        self._on_stuck()

    def _refuse_all(self, error: KafkaError) -> None:
        for write in (self._in_flight, *self._queue):
            if write is not None:
                answers, write.answers = write.answers, []
                for answer in answers:
                    answer.refuse(error)


def _size(records: Sequence[Encoded]) -> int:
    """Return a bound for what records take in a batch, its header included."""
    return HEADER_SIZE + sum(_RECORD_BYTES + len(key) + len(value or b"") for key, value in records)
