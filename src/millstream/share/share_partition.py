"""A share partition: a partition of a topic as one share group reads it. Pure: no clock, no I/O.

Its leader hands out records under a lock that ends by itself, counts how often each was delivered,
and takes back what consumers say of them::

    AVAILABLE --acquire--> ACQUIRED --accept-----------------------> ACKNOWLEDGED
        ^                     |------gap, aborted------------------> ARCHIVED
        |                     |------reject, returned at the limit-> ARCHIVING -> ARCHIVED
        '---------------------'------returned----------------------> AVAILABLE

    returned: released by its consumer, or the lock has ended, or the consumer's session

* The *start offset* is the first that is not in a terminal state; the *end offset* the last that
  was read from the log. What lies between is in flight (:mod:`~millstream.share.in_flight`).
* Acquiring is not persisted. An acknowledgement changes the state at once and is *undecided* until
  the write that :class:`StateWrite` describes has ended: then :meth:`SharePartition.written` or
  :meth:`SharePartition.failed` is called with it. Undecided records are neither acquired nor
  acknowledged, the start offset does not pass them, and their lock ends only once the write failed.
* ARCHIVING are records that :meth:`SharePartition.take_dead_letters` hands out, for the dead-letter
  topic of the group (KIP-1191), until :meth:`SharePartition.dead_lettered` is called for them. The
  start offset does not pass them. Without ``ShareRules.has_dead_letters`` they are ARCHIVED.
* When a lock ends, the change stays whatever becomes of its write: a record whose count was lost
  with a broker may be delivered once more than the limit for each such loss.
* Times are of a monotonic clock, in milliseconds.

Memory: one :class:`~millstream.share.in_flight.InFlightRange` (some 200 bytes) for each run of
offsets in one state, so at most one for each offset in flight: those are limited by
``max_record_locks`` and the one record batch that was acquired across that limit, and by
``MAX_IN_FLIGHT`` where that batch is longer.

Kafka: ``SharePartition``, ``InFlightBatch``, ``InFlightState``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import LeaderEpoch, Offset
from millstream.share.acknowledged_ranges import cut_at
from millstream.share.acknowledgements import AcknowledgedRun
from millstream.share.acquisition import (
    AcquiredRecords,
    AcquireRequest,
    archive_aborted,
    take,
    told,
)
from millstream.share.dead_letters import DeadLetterCause, DeadLetters
from millstream.share.fetched import FetchedBatches
from millstream.share.given_up import GivenUp, cause_of_stored
from millstream.share.in_flight import InFlight, InFlightRange, Previous
from millstream.share.record_state import AcknowledgeType, AcquireMode, RecordState
from millstream.share.rules import ShareRules
from millstream.share.state import ShareState, ShareStateUpdate, StateBatch

_STATE_OF: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass(frozen=True, slots=True)
class StateWrite:
    """What has to be persisted, and the ranges for which that decides."""

    update: ShareStateUpdate
    undecided: tuple[InFlightRange, ...] = field(default=(), repr=False)


class SharePartition:
    """The delivery states of the records of one share partition.

    ``state`` is what was read from the share coordinator; ``start_offset`` takes the place of its
    start offset where that was never set. ``rules`` may be assigned at any time.
    """

    def __init__(
        self,
        state: ShareState,
        *,
        start_offset: Offset,
        leader_epoch: LeaderEpoch,
        rules: ShareRules,
    ) -> None:
        self.rules = rules
        self._state_epoch = state.state_epoch
        self._leader_epoch = leader_epoch
        self._in_flight = InFlight(start_offset)
        self._may_have_available = True
        self._given_up = GivenUp(self._in_flight)
        self._lock_check_ms: float | None = None
        for batch in state.state_batches:
            self._load(batch)
        self._move_start()

    @property
    def start_offset(self) -> Offset:
        """The first offset that is not finished for the group."""
        return self._in_flight.start_offset

    @property
    def end_offset(self) -> Offset:
        """The last offset that was read from the log; ``start_offset - 1`` if nothing is in
        flight.
        """
        return self._in_flight.end_offset

    @property
    def delivery_complete_count(self) -> int:
        """How many offsets from the start offset on are in a terminal state."""
        return self._in_flight.terminal_count

    @property
    def lock_check_ms(self) -> float | None:
        """When :meth:`end_locks` should be called next: never after the first lock ends, at times
        before it. None if nothing is locked.
        """
        return self._lock_check_ms

    @property
    def in_flight(self) -> Sequence[InFlightRange]:
        """The ranges from the start to the end offset. Not to be changed."""
        return self._in_flight.ranges

    @property
    def next_fetch_offset(self) -> Offset:
        """Where to read the log next: at the first available record, else behind the end."""
        if self._may_have_available:
            for found in self._in_flight.ranges:
                if found.is_available:
                    return found.first_offset
            self._may_have_available = False
        return self.end_offset + 1

    @property
    def can_acquire(self) -> bool:
        """True if a fetch at ``next_fetch_offset`` might acquire something."""
        if self._in_flight.record_count < self.rules.max_record_locks:
            return True
        return self.next_fetch_offset <= self.end_offset

    # Acquire

    def acquire(
        self,
        request: AcquireRequest,
        fetched: FetchedBatches,
        *,
        fetch_offset: Offset,
        now_ms: float,
    ) -> list[AcquiredRecords]:
        """Lock records for a member out of what a read at ``fetch_offset`` returned.

        Whole record batches, and at most ``max_records`` unless one batch has more; with
        RECORD_LIMIT never more. Of a batch beyond ``MAX_IN_FLIGHT`` only a part. New records are
        limited by ``max_record_locks`` too. A record that has been delivered often comes in a
        portion of its own, halved with each delivery, and alone the last time (Kafka:
        ``SharePartition.acquire``).
        """
        if request.max_records <= 0:
            return []
        in_flight = self._in_flight
        taken = take(in_flight, self.rules, request, fetched, fetch_offset=fetch_offset)
        # Of a batch that is cut the rest is available.
        self._may_have_available |= request.mode is AcquireMode.RECORD_LIMIT
        deadline_ms = now_ms + self.rules.record_lock_duration_ms
        for each in taken:
            in_flight.change(each, RecordState.ACQUIRED, request.member_id)
            each.delivery_count += 1
            each.lock_deadline_ms = deadline_ms
        if taken:
            self._check_locks_at(deadline_ms)
        if fetched.aborted:
            taken = archive_aborted(in_flight, fetched, taken)
        self._move_start()
        return told(taken)

    # Acknowledge

    def acknowledge(
        self, member_id: str, runs: Sequence[AcknowledgedRun], now_ms: float
    ) -> StateWrite | None:
        """Take what a member says of records that it holds; None if nothing is to be persisted.

        All of it or nothing: raises KafkaError(INVALID_RECORD_STATE) if a record is not locked by
        the member, or its state is undecided, and INVALID_REQUEST for offsets behind the end
        offset. What is below the start offset is passed over.
        """
        start = self._in_flight.start_offset
        runs = [run for run in runs if run.last_offset >= start]
        if not runs:
            return None
        if not self._in_flight.ranges:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records are not in flight.")
        if runs[-1].last_offset > self.end_offset:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The offsets are past acquired records.")
        if not self.rules.renew_acknowledge and any(
            run.acknowledge_type is AcknowledgeType.RENEW for run in runs
        ):
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                "Renewing acquisition locks is not enabled for the group.",
            )
        return self._apply(cut_at(self._in_flight, member_id, runs), now_ms)

    def _apply(
        self, acknowledged: Iterable[tuple[InFlightRange, AcknowledgeType]], now_ms: float
    ) -> StateWrite | None:
        undecided: list[InFlightRange] = []
        for part, acknowledge_type in acknowledged:
            if acknowledge_type is AcknowledgeType.RENEW:
                part.lock_deadline_ms = now_ms + self.rules.record_lock_duration_ms
                continue
            is_rejected = acknowledge_type is AcknowledgeType.REJECT
            cause = DeadLetterCause.REJECTED if is_rejected else None
            self._begin_change(part, _STATE_OF[acknowledge_type], cause)
            undecided.append(part)
        return self._write(undecided, undecided)

    # Release, locks, log start

    def release(self, member_id: str) -> StateWrite | None:
        """Take back what a member holds whose session has ended; None if it holds nothing.

        The deliveries count, as in Kafka 4.3: what has used up its deliveries is archived.
        """
        undecided: list[InFlightRange] = []
        for found in self._in_flight.ranges:
            if found.state is RecordState.ACQUIRED and found.member_id == member_id:
                self._begin_change(found, RecordState.AVAILABLE)
                undecided.append(found)
        return self._write(undecided, undecided)

    def end_locks(self, now_ms: float) -> StateWrite | None:
        """Take back records whose lock has ended; None if there are none.

        They can be acquired at once. Whatever becomes of the write, the change stays.
        """
        ended: list[InFlightRange] = []
        next_ms: float | None = None
        for found in self._in_flight.ranges:
            if found.state is not RecordState.ACQUIRED:
                continue
            if found.lock_deadline_ms <= now_ms:
                self._change(found, RecordState.AVAILABLE)
                ended.append(found)
            elif next_ms is None or found.lock_deadline_ms < next_ms:
                next_ms = found.lock_deadline_ms
        self._lock_check_ms = next_ms
        if not ended:
            return None
        self._may_have_available = True
        write = self._write(ended, ())
        self._move_start()
        return write

    def move_log_start(self, log_start_offset: Offset) -> None:
        """Forget the records below the new start of the log.

        Nothing is written: the next write has the new start offset.
        """
        if log_start_offset > self._in_flight.start_offset:
            self._in_flight.move_start(log_start_offset)
            self._move_start()

    # The outcome of writes

    def written(self, write: StateWrite) -> None:
        """Decide the changes of a write that was persisted."""
        for changed in write.undecided:
            changed.previous = None
            if changed.state is RecordState.AVAILABLE:
                self._may_have_available = True
        self._move_start()

    def failed(self, write: StateWrite, now_ms: float) -> None:
        """Take back the changes of a write that was not, or perhaps not, persisted.

        The records are locked by their member again, unless the lock has ended meanwhile.
        """
        in_flight = self._in_flight
        for changed in write.undecided:
            previous = changed.previous
            changed.previous = None
            if previous is None or changed.record_count <= 0:
                continue
            in_flight.change(changed, previous.state, previous.member_id)
            changed.delivery_count = previous.delivery_count
            self._check_locks_at(changed.lock_deadline_ms)
            if changed.lock_deadline_ms <= now_ms:
                self._change(changed, RecordState.AVAILABLE)
        self._may_have_available = True
        self._move_start()

    # Dead letters

    def take_dead_letters(self) -> list[DeadLetters]:
        """Return the records that are to go to the dead-letter topic, each once: what was given up,
        and is decided.
        """
        return self._given_up.take()

    def dead_lettered(self, runs: Iterable[DeadLetters]) -> StateWrite | None:
        """Archive records that are in the dead-letter topic, or that were given up on the way to
        it; None if they are not in flight any more.

        Whatever becomes of the write, the change stays: a leader that reads an older state writes
        the records to the topic once more.
        """
        archived = self._given_up.archive(runs)
        write = self._write(archived, ())
        self._move_start()
        return write

    # Parts

    def _load(self, batch: StateBatch) -> None:
        in_flight = self._in_flight
        first = max(batch.first_offset, in_flight.end_offset + 1)
        if batch.last_offset < first:
            return
        behind = in_flight.end_offset + 1
        if behind < first:
            # Read by the last leader and not decided: neither acknowledged nor timed out.
            in_flight.append(self._loaded(behind, first - 1, RecordState.AVAILABLE, 0))
        state = RecordState(batch.delivery_state)
        cause = None
        if state is RecordState.ACQUIRED:
            state = RecordState.AVAILABLE
        elif state is RecordState.ARCHIVING:
            why = cause_of_stored(self.rules, batch.delivery_count)
            state, cause = self._given_up.ending(self.rules, RecordState.ARCHIVED, why)
        loaded = self._loaded(first, batch.last_offset, state, batch.delivery_count)
        loaded.cause = cause
        in_flight.append(loaded)

    @staticmethod
    def _loaded(
        first_offset: Offset, last_offset: Offset, state: RecordState, delivery_count: int
    ) -> InFlightRange:
        return InFlightRange(
            first_offset,
            last_offset,
            state,
            delivery_count,
            acquired_together=last_offset - first_offset + 1,
            acquired_from=first_offset,
        )

    def _change(
        self, changed: InFlightRange, state: RecordState, cause: DeadLetterCause | None = None
    ) -> None:
        """Give a range another state: a final one for what would be available but was delivered as
        often as allowed. ``cause`` is set where the records are given up for another reason.
        """
        is_used_up = changed.delivery_count >= self.rules.delivery_count_limit
        if state is RecordState.AVAILABLE and is_used_up:
            state, cause = RecordState.ARCHIVED, DeadLetterCause.DELIVERED_TOO_OFTEN
        state, cause = self._given_up.ending(self.rules, state, cause)
        self._in_flight.change(changed, state, cause=cause)

    def _begin_change(
        self, changed: InFlightRange, state: RecordState, cause: DeadLetterCause | None = None
    ) -> None:
        changed.previous = Previous(changed.state, changed.delivery_count, changed.member_id)
        self._change(changed, state, cause)

    def _write(
        self, changed: Sequence[InFlightRange], undecided: Sequence[InFlightRange]
    ) -> StateWrite | None:
        if not changed:
            return None
        update = ShareStateUpdate(
            state_epoch=self._state_epoch,
            leader_epoch=self._leader_epoch,
            start_offset=self._in_flight.start_offset,
            delivery_complete_count=self._in_flight.terminal_count,
            state_batches=_state_batches(changed),
        )
        return StateWrite(update, tuple(undecided))

    def _check_locks_at(self, deadline_ms: float) -> None:
        if self._lock_check_ms is None or deadline_ms < self._lock_check_ms:
            self._lock_check_ms = deadline_ms

    def _move_start(self) -> None:
        """Move the start offset past what is decided and in a terminal state."""
        start = self._in_flight.start_offset
        for found in self._in_flight.ranges:
            if not found.state.is_terminal or found.previous is not None:
                break
            start = found.last_offset + 1
        if start > self._in_flight.start_offset:
            self._in_flight.move_start(start)


def _state_batches(changed: Iterable[InFlightRange]) -> tuple[StateBatch, ...]:
    """Return the ranges as state batches, neighbours in one state as one."""
    batches: list[StateBatch] = []
    for each in changed:
        batch = StateBatch(
            each.first_offset, each.last_offset, int(each.state), each.delivery_count
        )
        last = batches[-1] if batches else None
        if last and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
            batch = StateBatch(last.first_offset, batch.last_offset, *batch[2:])
            batches.pop()
        batches.append(batch)
    return tuple(batches)
