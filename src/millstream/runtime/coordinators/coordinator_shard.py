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
from collections.abc import Callable
from enum import Enum, auto
from typing import Final, Generic, Protocol, TypeVar

from millstream.coordinator.result import CoordinatorRecord, Instant, Result
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.offsets import Offset
from millstream.records.builder import BatchOptions
from millstream.runtime.coordinators.coordinator_loader import load
from millstream.runtime.coordinators.coordinator_writes import CoordinatorWrites
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition

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

    def postpone(self, by_ms: float) -> None:
        """Move every deadline later: for so long no request was taken."""

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


class State(Enum):
    """See the table above."""

    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


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
        self._clock = clock
        self._offload = offload
        self._next_record_offset = 0
        """Numbers records as they are applied: above every loaded one, growing as offsets do."""
        self._writes = CoordinatorWrites(
            partition,
            options,
            clock=clock,
            commit_timeout_ms=commit_timeout_ms,
            on_failed=self._restart,
            on_resumed=self._resume,
        )
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
            result = Result()
            result.refuse(reply, error)
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
                stuck = self._writes.is_stuck
                return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if stuck else None

    def _carry_out(self, result: Result[R]) -> None:
        """Apply a result's records, queue them, and send its answers when they are committed."""
        encoded = [record.encode() for record in result.records]
        if result.atomic and not self._writes.fits(encoded):
            self._refuse_large(result)
            return
        for part in [encoded] if result.atomic else [[each] for each in encoded]:
            if part:
                self._writes.add(part)
        for record in result.records:
            if result.replay:
                self._shard.replay(record, record_offset=self._next_record_offset)
            self._next_record_offset += 1
        self._arm_timer()
        self._writes.send(result.answers)

    def _refuse_large(self, result: Result[R]) -> None:
        error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "the records fill more than a batch")
        for answer in result.answers:
            answer.refuse(coordinator_error(error))
        if not result.replay:
            self._restart(error)

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
            self._writes.hold_until_committed(end)
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
        self._writes.abandon(error)
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
        # Whoever is not listened to does not expire (_resume).
        if self.state is State.ACTIVE and not self._writes.is_stuck:
            self._carry_out(self._shard.expire(self._now()))

    def _resume(self, stuck_ms: float) -> None:
        """Go on after writes were stuck for so long, and every request was refused."""
        self._shard.postpone(stuck_ms)
        self._arm_timer()
