"""Runs one pure coordinator over one partition: plan, persist, apply, answer.

::

    LOADING ──all records replayed──▶ ACTIVE ──append failed──▶ LOADING (from the log again)
       │                                │
       └──────unreadable, closed────────┴──▶ CLOSED

While ACTIVE an operation is planned and its records are applied at once, in memory, so the next
operation sees them; they go to the log at the end of the pass of the loop, in one batch with those
of other operations, and with those that come while the batch before is on its way to be committed
(group commit). An answer leaves when the last batch that it may rest on is committed; with nothing
on its way it leaves at once. So nobody sees a state that a failed write takes back.

Before an operation is planned the partition is asked whether it may be spoken for and written to;
an operation that is refused has changed nothing, and no records have to be loaded again:

=======================================  =========================  ==============================
the partition                            operations that read       operations that write, timers
=======================================  =========================  ==============================
is led under the lease, min ISR reached  go on                      go on
has too few replicas in sync             go on                      COORDINATOR_NOT_AVAILABLE
has a batch that is not committed        COORDINATOR_NOT_AVAILABLE  COORDINATOR_NOT_AVAILABLE
may be led by another broker             NOT_COORDINATOR            NOT_COORDINATOR
=======================================  =========================  ==============================

Time in which operations were refused counts for nobody's deadline. Kafka:
``CoordinatorRuntime.CoordinatorContext``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, Generic, TypeVar, cast

from millstream.coordinator.result import (
    Answer,
    BackgroundTask,
    Continuation,
    Instant,
    LocalMarkers,
    OutboundRequest,
    Result,
    TransactionEnd,
    TransactionProducer,
)
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError, StorageError
from millstream.model.offsets import Offset
from millstream.model.producer import NO_PRODUCER_ID
from millstream.records.builder import BatchOptions
from millstream.runtime.coordinators.coordinator_loader import load
from millstream.runtime.coordinators.coordinator_writes import (
    CoordinatorWrites,
    Verification,
    coordinator_error,
)
from millstream.runtime.coordinators.outlets import Outlets
from millstream.runtime.coordinators.shard import S
from millstream.runtime.offload import Offload
from millstream.runtime.replicas.partition import Partition

log = logging.getLogger(__name__)

R = TypeVar("R")

_FINAL_ERRORS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""After these the partition is not here any more."""


class State(Enum):
    """See the diagram above."""

    LOADING = auto()
    ACTIVE = auto()
    CLOSED = auto()


class ShardDriver(Generic[S]):
    """One partition's coordinator, its writes and its timer.

    ``new_shard`` makes an empty state machine; ``outlets`` take what its operations ask for.
    :meth:`look` has to be called from time to time.
    """

    def __init__(
        self,
        partition: Partition,
        new_shard: Callable[[], S],
        *,
        options: BatchOptions,
        clock: Clock,
        offload: Offload,
        commit_timeout_ms: int,
        outlets: Outlets,
    ) -> None:
        self.state = State.LOADING
        self.partition = partition
        self._new_shard = new_shard
        self._shard = new_shard()
        self._clock = clock
        self._offload = offload
        self._outlets = outlets
        self._next_record_offset = 0
        """Numbers records as they are applied: above every loaded one, growing as offsets do."""
        self._writes = CoordinatorWrites(
            partition,
            options,
            clock=clock,
            commit_timeout_ms=commit_timeout_ms,
            on_failed=self._restart,
            on_stuck=self.look,
            send_request=self._send,
            go_on=self._go_on,
        )
        self._timer: TimerHandle | None = None
        self._timer_ms = 0.0
        self._refusing_since_ms: float | None = None
        """Since when operations that write are refused, so that deadlines stand still."""
        self._is_suspended = False
        self._postponed: list[Callable[[S, Instant], Result[None]]] = []
        """Operations that nobody waits for, to be run when they are not refused any more."""

    # Operations

    @property
    def waits_for(self) -> str:
        """What this shard waits for; empty while it serves."""
        if self.state is not State.ACTIVE:
            return f"it is {self.state.name.lower()}"
        if self._is_suspended:
            return "it may not speak for its partition, or not write to it"
        return f"{len(self._postponed)} operations are postponed" if self._postponed else ""

    @property
    def active_shard(self) -> S | None:
        """The state machine, to be looked at; None unless it is loaded and serves."""
        return self._shard if self.state is State.ACTIVE else None

    @property
    def settled_shard(self) -> S | None:
        """The state machine, where what it knows may be said at once: it serves, this broker may
        speak for its partition, and nothing of its state waits to be committed, but for records
        that are not urgent (``Result.is_urgent``).
        """
        is_settled = self._writes.is_settled and self._refusal_to_read() is None
        return self._shard if is_settled else None

    def write(
        self, operation: Callable[[S, Instant], Result[R]], reply: Deferred[R] | None = None
    ) -> Deferred[R]:
        """Run an operation that may make records; its response fills ``reply``, or what the
        operation parked it for.

        Fails with COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, what the operation raises, or
        COORDINATOR_NOT_AVAILABLE when records cannot be written, or are not committed in time.
        """
        return self._run(operation, Deferred() if reply is None else reply, self._refusal_to_write)

    def read(self, operation: Callable[[S, Instant], Result[R]]) -> Deferred[R]:
        """Run an operation that makes no records; it fails as :meth:`write` does, but goes on
        where too few replicas are in sync.
        """
        return self._run(operation, Deferred(), self._refusal_to_read)

    def write_transactional(
        self,
        producer: TransactionProducer,
        verified: Verification,
        operation: Callable[[S, Instant], Result[R]],
    ) -> Deferred[R]:
        """Run an operation whose records are part of a producer's transaction, which has been
        ``verified`` (``Partition.transactions``). Fails as :meth:`write` does, and with
        INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE where the transaction has ended.
        """

        def checked(shard: S, now: Instant) -> Result[R]:
            self._writes.check_transactional(producer, verified)
            result = operation(shard, now)
            result.producer = producer
            return result

        return self.write(checked)

    def end_transaction(self, end: TransactionEnd) -> Deferred[None]:
        """Append the marker that ends a producer's transaction in order with all other writes, and
        apply it. Filled once it is committed; fails as :meth:`write` does, and with
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        ended: Deferred[None] = Deferred()
        reply = cast("Deferred[object]", ended)

        def mark(shard: S, now: Instant) -> Result[None]:
            self._writes.check_end(end)
            producer_id = end.producer.producer_id
            # Whoever is verified now is verified for what ends here.
            self.partition.log.producers.state.forget_verification(producer_id)
            shard.end_transaction(producer_id, committed=end.committed)
            self._next_record_offset += 1
            self._writes.add_end(end)
            return Result(answers=[Answer(reply, None)])

        return self._run(mark, ended, self._refusal_to_write)

    def write_when_possible(self, operation: Callable[[S, Instant], Result[None]]) -> None:
        """Run an operation that nobody waits for: now, or as soon as it is not refused. It is
        forgotten when the shard is closed.
        """
        if self.state is not State.CLOSED:
            self._postponed.append(operation)
            self._run_postponed()

    def _run(
        self,
        operation: Callable[[S, Instant], Result[R]],
        reply: Deferred[R],
        refusal_of: Callable[[], KafkaError | None],
    ) -> Deferred[R]:
        refusal = refusal_of()
        if refusal is not None:
            self.look()
            reply.fail(refusal)
            return reply
        if self._refusing_since_ms is not None:
            self.look()
        return self._perform(operation, reply)

    def _perform(
        self, operation: Callable[[S, Instant], Result[R]], reply: Deferred[R]
    ) -> Deferred[R]:
        """Run an operation that is not refused."""
        try:
            result = operation(self._shard, self._now())
        except KafkaError as error:
            result = Result()
            result.refuse(reply, error)
        if result.response is not None:
            result.answer(reply, result.response)
        self._carry_out(result)
        return reply

    def _refusal_to_read(self) -> KafkaError | None:
        if self.state is State.CLOSED:
            return KafkaError(ErrorCode.NOT_COORDINATOR)
        refusal = self.partition.refusal_to_answer()
        if refusal is not None:
            return coordinator_error(refusal)
        if self.state is State.LOADING:
            return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) if self._writes.is_stuck else None

    def _refusal_to_write(self) -> KafkaError | None:
        refusal = self._refusal_to_read()
        if refusal is None:
            refusal = self.partition.refusal_to_write(-1)
        return None if refusal is None else coordinator_error(refusal)

    def _carry_out(self, result: Result[R]) -> None:
        """Apply a result's records and queue them; send its answers and the requests it asks for,
        and run what it has left to be done, when they are committed.
        """
        if result.records and not self._queue(result):
            self._refuse_large(result)
            return
        self._arm_timer()
        self._writes.send(result.answers, result.outbound, result.when_committed)
        for task in result.tasks:
            self._begin(task)

    def _queue(self, result: Result[R]) -> bool:
        """Queue a result's records and apply them; False, and nothing is done, where they have to
        go into one batch and do not fit.
        """
        encoded = [record.encode() for record in result.records]
        producer, is_urgent = result.producer, result.is_urgent
        if result.atomic:
            if not self._writes.add(encoded, producer, is_urgent=is_urgent):
                return False
        else:
            for each in encoded:
                self._writes.add((each,), producer, is_limited=False, is_urgent=is_urgent)
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        for record in result.records:
            if result.replay:
                self._shard.replay(
                    record, record_offset=self._next_record_offset, producer_id=producer_id
                )
            self._next_record_offset += 1
        return True

    def _refuse_large(self, result: Result[R]) -> None:
        error = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "the records fill more than a batch")
        for answer in result.answers:
            answer.refuse(coordinator_error(error))
        if not result.replay:
            self._restart(error)

    # What follows

    def _send(self, outbound: OutboundRequest | LocalMarkers) -> None:
        self._outlets.carry_out(outbound, partial(self._run_on, self._shard))

    def _go_on(self, continuation: Continuation) -> None:
        self._run_on(self._shard, continuation)

    def _run_on(self, owner: S, continuation: Continuation) -> None:
        """Run an operation on the state machine that has asked for it, not on one loaded since."""

        def operation(shard: S, now: Instant) -> Result[None]:
            return continuation(now) if shard is owner else Result()

        self.write_when_possible(operation)

    def _begin(self, task: BackgroundTask) -> None:
        owner = self._shard

        def settle(outcome: Deferred[object]) -> None:
            taken: object
            try:
                taken = outcome.result()
            except MillstreamError as error:
                taken = error
            except Exception as error:  # whoever waits for the outcome waits no more
                log.exception("a task of the coordinator of %s failed", self._name)
                taken = MillstreamError(str(error))

            self._run_on(owner, partial(task.event, taken))

        self._offload.run("coordinator-task", task.work).on_done(settle)

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
                except Exception as error:
                    self._not_loaded(error)
                else:
                    log.info("loaded the coordinator of %s: %d records", self._name, records)
                    self._activate(end)
            started.complete(None)

        loaded.on_done(finish)
        return started

    def _not_loaded(self, error: Exception) -> None:
        """Serve nothing: the records cannot be read. A disk that fails goes offline, so that other
        replicas lead what lies there.
        """
        log.critical("cannot load the coordinator of %s: %s", self._name, error)
        if not isinstance(error, MillstreamError) or isinstance(error, StorageError):
            self.partition.refusal_after(error, ErrorCode.CORRUPT_MESSAGE)
        self.close()

    def close(self) -> None:
        """Serve no more; everybody who waits is told to look for another coordinator."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._postponed.clear()
        self._abandon(KafkaError(ErrorCode.NOT_COORDINATOR))

    def look(self) -> None:
        """Look whether the partition may be spoken for and written to: while it may not, deadlines
        stand still, and whoever waits under a lease that has ended is told to look elsewhere.
        """
        if self.state is not State.ACTIVE:
            return
        now = self._now()
        if self._refusal_to_write() is not None:
            if self._refusing_since_ms is None:
                self._refusing_since_ms = now.monotonic_ms
            if not self._is_suspended and self.partition.refusal_to_answer() is not None:
                self._is_suspended = True
                for answer in self._shard.on_suspended(now).answers:
                    answer.send()
            return
        self._is_suspended = False
        if self._refusing_since_ms is not None:
            self._shard.postpone(now.monotonic_ms - self._refusing_since_ms)
            self._refusing_since_ms = None
            self._arm_timer()
        self._run_postponed()

    @property
    def _name(self) -> str:
        return str(self.partition.topic_partition)

    def _activate(self, end: Offset) -> None:
        self.state = State.ACTIVE
        if self.partition.high_watermark < end:
            self._writes.hold_until_committed(end)
        self._carry_out(self._shard.on_loaded(self._now()))
        self._run_postponed()

    def _run_postponed(self) -> None:
        while self._postponed and self._refusal_to_write() is None:
            if self._refusing_since_ms is not None:
                self.look()  # which comes back here
            else:
                self._perform(self._postponed.pop(0), Deferred())

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
        self._refusing_since_ms = None
        self._is_suspended = False
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
        self.look()
        # Whoever is not listened to does not expire.
        if self.state is State.ACTIVE and self._refusing_since_ms is None:
            self._carry_out(self._shard.expire(self._now()))
