"""Runs one pure coordinator over one partition: plan, persist, apply, answer.

::

    LOADING ──all records replayed──▶ ACTIVE ──append failed──▶ LOADING (from the log again)
       │                                │
       └──────unreadable, closed────────┴──▶ CLOSED

While ACTIVE an operation is planned and its records are applied at once, in memory, so the next
operation sees them; they go to the log at the end of the loop's turn, in one batch with those of
other operations, and with those that come while the batch before is on its way to be committed
(group commit). An answer leaves when the last batch that it may rest on is committed; with nothing
on its way it leaves at once. So nobody sees a state that a failed write takes back.

Kafka: ``CoordinatorRuntime.CoordinatorContext``.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from millstream.coordinator.result import Answer, CoordinatorRecord, Instant, Result
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.coordinator_loader import load
from millstream.runtime.offload import Offload
from millstream.runtime.partition import Partition

log = logging.getLogger(__name__)

R = TypeVar("R")


class Shard(Protocol):
    """What a pure coordinator offers to its driver."""

    @property
    def next_deadline_ms(self) -> float | None:
        """When :meth:`expire` has something to do, on the monotonic clock."""

    def decode(self, key: bytes, value: bytes | None) -> CoordinatorRecord | None:
        """Read a stored record; None for one that means nothing here."""

    def replay(
        self, record: CoordinatorRecord, *, record_offset: int, producer_id: int = -1
    ) -> None:
        """Apply a record that is in the log, or is about to be."""

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Apply the marker that ends a producer's transaction."""

    def expire(self, now: Instant) -> Result[None]:
        """Do what the deadlines that have passed ask for."""

    def on_loaded(self, now: Instant) -> Result[None]:
        """Begin to serve what the log says."""

    def on_unloaded(self) -> Result[None]:
        """Answer everybody who waits: they have to look for another coordinator."""


S = TypeVar("S", bound=Shard)

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
"""What the clients of a coordinator hear when its log refuses a write."""

_FINAL_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""After these the partition is not here any more."""


def coordinator_error(error: KafkaError) -> KafkaError:
    """Return what the clients of a coordinator hear for an error of its log."""
    return KafkaError(COORDINATOR_ERRORS.get(error.error, error.error), error.message)


_RECORD_BYTES: Final = 32
"""More than the lengths and deltas of one record take."""


class State(Enum):
    """See the table above."""

    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Write:
    """A batch on its way, and the answers that wait for it."""

    builder: BatchBuilder
    answers: list[Answer] = field(default_factory=list)


class ShardDriver(Generic[S]):
    """One partition's coordinator, its writes and its timer."""

    def __init__(
        self,
        partition: Partition,
        new_shard: Callable[[], S],
        *,
        options: BatchOptions,
        clock: Clock,
        offload: Offload,
        commit_timeout_ms: int,
    ) -> None:
        self.state = State.LOADING
        self.partition = partition
        self._new_shard = new_shard
        self._shard = new_shard()
        self._options = options
        self._clock = clock
        self._offload = offload
        self._commit_timeout_ms = commit_timeout_ms
        self._next_record_offset = 0
        """Numbers records as they are applied: above every loaded one, growing as offsets do."""
        self._in_flight: _Write | None = None
        self._queue: deque[_Write] = deque()
        self._flush_scheduled = False
        self._is_stuck = False
        """A write was not committed in time; nothing is begun until it is."""
        self._timer: TimerHandle | None = None
        self._timer_ms = 0.0
        self._once_loaded: list[Callable[[S, Instant], Result[None]]] = []

    # Operations

    def run(
        self, operation: Callable[[S, Instant], Result[R]], reply: Deferred[R] | None = None
    ) -> Deferred[R]:
        """Run an operation; its response fills ``reply``, or what the operation parked it for.

        Fails with COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, what the operation raises, or
        COORDINATOR_NOT_AVAILABLE when the records are not committed in time.
        """
        if reply is None:
            reply = Deferred()
        refusal = self._refusal()
        if refusal is not None:
            reply.fail(refusal)
            return reply
        try:
            result = operation(self._shard, self._now())
        except KafkaError as error:
            reply.fail(error)
            return reply
        if result.response is not None:
            result.answer(reply, result.response)
        self._carry_out(result)
        return reply

    def run_once_loaded(self, operation: Callable[[S, Instant], Result[None]]) -> None:
        """Run an operation that nobody waits for: now, or when the shard has loaded."""
        if self.state is State.LOADING:
            self._once_loaded.append(operation)
        else:
            self.run(operation)

    def _refusal(self) -> KafkaError | None:
        match self.state:
            case State.LOADING:
                return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            case State.CLOSED:
                return KafkaError(ErrorCode.NOT_COORDINATOR)
            case State.ACTIVE:
                stuck = self._is_stuck
                return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if stuck else None

    def _carry_out(self, result: Result[R]) -> None:
        """Apply a result's records, queue them, and send its answers or let them wait."""
        if result.records and not self._enqueue(result):
            too_large = KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, "the records fill more than a batch"
            )
            for answer in result.answers:
                answer.refuse(coordinator_error(too_large))
            if not result.replay:
                self._restart(too_large)
            return
        self._arm_timer()
        last = self._queue[-1] if self._queue else self._in_flight
        if last is not None:
            last.answers += result.answers
            return
        for answer in result.answers:
            answer.send()

    # Writes

    def _enqueue(self, result: Result[R]) -> bool:
        """Put the records into batches and apply them; False when they do not fit in one."""
        limit = self.partition.log.config.max_message_bytes
        pairs = [(record, record.encode()) for record in result.records]
        parts = [pairs] if result.atomic else [[pair] for pair in pairs]
        if result.atomic and _size(pairs) > limit:
            return False
        wall_ms = self._clock.now_ms()
        for part in parts:
            write = self._write_with_room(_size(part), limit)
            for record, (key, value) in part:
                write.builder.append(wall_ms, key, value)
                if result.replay:
                    self._shard.replay(record, record_offset=self._next_record_offset)
                self._next_record_offset += 1
        if not self._flush_scheduled and self._in_flight is None:
            self._flush_scheduled = True
            self._clock.call_soon(self._flush)
        return True

    def _write_with_room(self, size: int, limit: int) -> _Write:
        if not self._queue or self._queue[-1].builder.size + size > limit:
            self._queue.append(_Write(BatchBuilder(self._options)))
        return self._queue[-1]

    def _flush(self) -> None:
        """Append the oldest batch, unless one is on its way."""
        self._flush_scheduled = False
        if self._in_flight is not None or not self._queue or self.state is not State.ACTIVE:
            return
        write = self._in_flight = self._queue.popleft()
        appended = self.partition.append_internal(write.builder.build())
        if not appended.done:
            self._watch(write)
        appended.on_done(lambda outcome: self._on_appended(write, outcome))

    def _watch(self, write: _Write) -> None:
        def on_timeout() -> None:
            if self._in_flight is write:
                self._is_stuck = True
                error = KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "the write is not committed"
                )
                self._refuse_waiting(error)

        self._clock.call_later(self._commit_timeout_ms, on_timeout)

    def _on_appended(self, write: _Write, outcome: Deferred[Offset]) -> None:
        if self._in_flight is not write:
            return  # the shard was closed or loaded again meanwhile
        try:
            outcome.result()
        except KafkaError as error:
            self._restart(error)
            return
        self._is_stuck = False
        self._in_flight = None
        self._flush()
        for answer in write.answers:
            answer.send()

    def _refuse_waiting(self, error: KafkaError) -> None:
        for write in (self._in_flight, *self._queue):
            if write is not None:
                answers, write.answers = write.answers, []
                for answer in answers:
                    answer.refuse(error)

    # Life

    def start(self) -> Deferred[None]:
        """Replay the partition's records, then serve; filled when that has succeeded or failed."""
        partition_log = self.partition.log
        self.state = State.LOADING
        self._shard = shard = self._new_shard()
        self._next_record_offset = end = partition_log.log_end_offset
        if partition_log.log_start_offset == end:
            self._activate(end)
            return Deferred.of(None)
        loaded = spawn(load(partition_log, shard, self._offload))
        started: Deferred[None] = Deferred()

        def finish(outcome: Deferred[int]) -> None:
            if self._shard is shard and self.state is State.LOADING:
                try:
                    records = outcome.result()
                except MillstreamError as error:
                    log.critical("cannot load the coordinator of %s: %s", self._name, error)
                    self.close()
                else:
                    log.info("loaded the coordinator of %s: %d records", self._name, records)
                    self._activate(end)
            started.complete(None)

        loaded.on_done(finish)
        return started

    def close(self) -> None:
        """Serve no more; everybody who waits is told to look for another coordinator."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._abandon(KafkaError(ErrorCode.NOT_COORDINATOR))

    @property
    def _name(self) -> str:
        return str(self.partition.topic_partition)

    def _activate(self, end: Offset) -> None:
        self.state = State.ACTIVE
        if self.partition.high_watermark < end:
            # What was read last is not committed yet; answers that rest on it wait like others.
            write = self._in_flight = _Write(BatchBuilder(self._options))
            committed: Deferred[Offset] = Deferred()
            committed.on_done(lambda outcome: self._on_appended(write, outcome))
            self.partition.wait_for_commit(
                end - 1,
                lambda error: committed.fail(error) if error else committed.complete(end - 1),
            )
        self._carry_out(self._shard.on_loaded(self._now()))
        operations, self._once_loaded = self._once_loaded, []
        for operation in operations:
            self.run(operation)

    def _restart(self, error: KafkaError) -> None:
        """Give up what memory holds: it says more than the log."""
        log.warning("a write to %s failed: %s", self._name, error)
        is_final = error.error in _FINAL_ERRORS
        self.state = State.CLOSED if is_final else State.LOADING
        self._abandon(coordinator_error(error))
        if not is_final:
            self.start()

    def _abandon(self, error: KafkaError) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_stuck = False
        self._refuse_waiting(error)
        self._in_flight = None
        self._queue.clear()
        for answer in self._shard.on_unloaded().answers:
            answer.send()

    # Time

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), self._clock.monotonic_ms())

    def _arm_timer(self) -> None:
        deadline_ms = self._shard.next_deadline_ms
        if deadline_ms is None or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        delay_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        self._timer = self._clock.call_later(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.state is State.ACTIVE:
            self._carry_out(self._shard.expire(self._now()))


def _size(pairs: list[tuple[CoordinatorRecord, tuple[bytes, bytes | None]]]) -> int:
    """Return a bound for what records take in a batch, its header included."""
    return HEADER_SIZE + sum(
        _RECORD_BYTES + len(key) + len(value or b"") for _, (key, value) in pairs
    )
