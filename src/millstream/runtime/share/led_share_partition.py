"""A share partition whose partition this broker leads: loaded, served, persisted.

Its state is read from the share coordinator once, with the leader epoch, which shuts out writes of
older leaders; from then on every change that must not be lost is written there before whoever
caused it is answered. When the partition is led elsewhere, or the coordinator knows a newer leader,
it is dropped, and the next fetch reads the state anew. Kafka: ``SharePartition.maybeInitialize``,
``writeShareGroupState``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from millstream.config.offset_reset import OffsetReset
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.offsets import Offset
from millstream.runtime.replicas.partition import READ_UNCOMMITTED
from millstream.runtime.replicas.partition_requests import offset_for_timestamp
from millstream.runtime.share.share_settings import ShareGroupSettings
from millstream.share.share_partition import SharePartition, StateWrite
from millstream.share.state import UNINITIALIZED_START_OFFSET, SharePartitionKey, ShareState

if TYPE_CHECKING:
    from millstream.model.clock import Clock, TimerHandle
    from millstream.runtime.replicas.partition import Partition
    from millstream.runtime.replicas.waiters import FetchWaiter
    from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
    from millstream.runtime.share.persister import SharePersister
    from millstream.share.acknowledgements import AcknowledgedRun
    from millstream.share.dead_letters import DeadLetters

log = logging.getLogger(__name__)

_ANSWERS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""What a consumer hears when the persister refuses (Kafka: ``fetchPersisterError``); of all else
UNKNOWN_SERVER_ERROR."""

_FENCING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What is known here is not what the coordinator has."""


class LedSharePartition:
    """One share partition. ``machine`` is None until its state is read.

    ``settings`` returns what the group is set to now; ``on_fenced`` is called when another leader
    has taken over, or the state is gone.
    """

    __slots__ = (
        "__weakref__",
        "_clock",
        "_dead_letters",
        "_is_archiving",
        "_is_superseded",
        "_on_fenced",
        "_persister",
        "_settings",
        "_timer",
        "_timer_ms",
        "failure",
        "is_dropped",
        "is_full",
        "key",
        "machine",
        "partition",
        "waiters",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        partition: Partition,
        *,
        clock: Clock,
        persister: SharePersister,
        settings: Callable[[], ShareGroupSettings],
        dead_letters: DeadLetterTopics,
        on_fenced: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.machine: SharePartition | None = None
        self.failure: KafkaError | None = None
        """Why the state could not be read."""
        self.waiters: dict[FetchWaiter, None] = {}
        """Fetches that wait for something to change here."""
        self.is_full = False
        """True if a fetch waits because too many records are in flight."""
        self.is_dropped = False
        self._clock = clock
        self._persister = persister
        self._settings = settings
        self._dead_letters = dead_letters
        self._is_archiving = False
        """True while dead letters are written."""
        self._is_superseded = False
        self._on_fenced = on_fenced
        self._timer: TimerHandle | None = None
        self._timer_ms = 0.0

    # Loading

    def load(self) -> None:
        """Read the state; whoever waits is woken then."""

        def loaded(outcome: Deferred[None]) -> None:
            try:
                outcome.result()
            except KafkaError as error:
                self.failure = self._refused(error, "read")
            except Exception:  # a fault of ours, or a state that is none: told, not hidden
                log.exception("the state of %s is unusable", self)
                self.failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            self.wake()
            self.changed()
            if self.failure is not None:
                self._on_fenced(self)

        spawn(self._load()).on_done(loaded)

    async def _load(self) -> None:
        partition = self.partition
        epoch = partition.leader_epoch
        state: ShareState = await self._persister.read(self.key, leader_epoch=epoch)
        settings = self._settings()
        start_offset = state.start_offset
        if start_offset == UNINITIALIZED_START_OFFSET:
            start_offset = await self._reset_offset(settings)
        self.machine = SharePartition(
            state, start_offset=start_offset, leader_epoch=epoch, rules=settings.rules
        )
        self.machine.move_log_start(partition.log_start_offset)

    async def _reset_offset(self, settings: ShareGroupSettings) -> Offset:
        """Return where a group begins of which nothing is known."""
        partition = self.partition
        match settings.offset_reset:
            case OffsetReset.EARLIEST:
                return partition.log_start_offset
            case OffsetReset.BY_DURATION:
                timestamp = self._clock.now_ms() - settings.reset_duration_ms
                found = await offset_for_timestamp(partition, timestamp)
                end = partition.visible_end(READ_UNCOMMITTED)
                return end if found is None else min(found.offset, end)
        return partition.visible_end(READ_UNCOMMITTED)

    # What consumers say

    def acknowledge(self, member_id: str, runs: Sequence[AcknowledgedRun]) -> Deferred[None]:
        """Take acknowledgements; answered once they are persisted. Fails with KafkaError."""
        machine = self._ready()
        try:
            write = machine.acknowledge(member_id, runs, self._clock.monotonic_ms())
        except KafkaError as error:
            refused: Deferred[None] = Deferred()
            refused.fail(error)
            return refused
        return self._persist(write)

    def release(self, member_id: str) -> Deferred[None]:
        """Release what a member holds; answered once that is persisted. Fails with KafkaError."""
        return self._persist(self._ready().release(member_id))

    def _ready(self) -> SharePartition:
        assert self.machine is not None, "a share partition that is not loaded was asked"
        self.machine.rules = self._settings().rules
        return self.machine

    def _persist(self, write: StateWrite | None) -> Deferred[None]:
        machine = self.machine
        assert machine is not None
        if write is None:
            return Deferred.of(None)
        outcome: Deferred[None] = Deferred()

        def ended(reply: Deferred[None]) -> None:
            try:
                reply.result()
            except KafkaError as error:
                machine.failed(write, self._clock.monotonic_ms())
                refusal = self._refused(error, "written")
                self.changed()
                if refusal.error in _FENCING or error.error is ErrorCode.INVALID_REQUEST:
                    # INVALID_REQUEST: the state was deleted, with its group. A group of the same
                    # name may begin anew, whose state epochs do not tell this leader from it.
                    self._on_fenced(self)
                outcome.fail(refusal)
            else:
                machine.written(write)
                self.changed()
                outcome.complete(None)

        self._persister.write(self.key, write.update).on_done(ended)
        return outcome

    def _refused(self, error: KafkaError, what: str) -> KafkaError:
        answer = _ANSWERS.get(error.error, ErrorCode.UNKNOWN_SERVER_ERROR)
        log.info("the state of %s was not %s: %s", self, what, error)
        return KafkaError(answer, error.message)

    # Locks and waiting

    def changed(self) -> None:
        """Take note that records were acquired, or their states have changed: wake who waits for
        them, and see to it that locks end.
        """
        machine = self.machine
        if machine is None:
            return
        if not (self._is_archiving or self._is_superseded or self.partition.is_gone):
            self._archive()
        if self.is_dropped:
            return
        has_more = machine.next_fetch_offset <= machine.end_offset
        if self.waiters and (has_more or (self.is_full and machine.can_acquire)):
            self.is_full = False
            self.wake()
        check_ms = machine.lock_check_ms
        if check_ms is not None and (self._timer is None or check_ms < self._timer_ms):
            self._stop_timer()
            self._timer_ms = check_ms
            self._timer = self._clock.call_later(
                max(0.0, check_ms - self._clock.monotonic_ms()), self._end_locks
            )

    def wake(self) -> None:
        """Let every waiting fetch look again."""
        for waiter in tuple(self.waiters):
            waiter.wake()

    def drop(self) -> None:
        """Serve nobody any more: another leader, or a new read of the state, goes on."""
        self.is_dropped = True
        self._stop_timer()
        self.wake()

    def _end_locks(self) -> None:
        self._timer = None
        if self.partition.is_gone:
            self._on_fenced(self)
            return
        machine = self._ready()
        write = machine.end_locks(self._clock.monotonic_ms())
        self._persist(write).on_done(ignore_refusal)
        self.changed()

    # Dead letters

    def supersede(self) -> None:
        """Write no dead letters any more, nor that they are written: the one that is loaded next
        has the share partition, and takes up what was on its way.
        """
        self._is_superseded = True

    def _archive(self) -> None:
        """Write what was given up to the dead-letter topic, one batch after the other.

        Also when the last consumer has left and this was dropped: nobody else would do it until the
        next one comes.
        """
        machine = self.machine
        assert machine is not None
        waiting = machine.take_dead_letters()
        if not waiting:
            return
        self._is_archiving = True

        def ended(outcome: Deferred[None]) -> None:
            self._is_archiving = False
            try:
                outcome.result()
            except Exception:  # a fault of ours: told, not hidden
                log.exception("dead letters of %s were not written", self)
            self.changed()

        spawn(self._write_dead_letters(machine, waiting)).on_done(ended)

    async def _write_dead_letters(
        self, machine: SharePartition, waiting: Sequence[DeadLetters]
    ) -> None:
        rest = waiting
        error: Exception | None
        while rest:
            try:
                settled, rest, error = await self._dead_letters.write(
                    self.key, self.partition, rest, self._settings()
                )
            except Exception as fault:
                log.exception("dead letters of %s could not be written", self)
                settled, rest, error = rest, (), fault
            if self.partition.is_gone or self._is_superseded:
                return  # whoever leads next finds them as they were, and writes them again
            if error is not None:
                # As in Kafka: a topic that cannot be written to holds up no group.
                log.warning(
                    "offsets %s of %s are archived without a dead letter: %s",
                    _offsets(settled),
                    self,
                    error,
                )
            self._persist(machine.dead_lettered(settled)).on_done(ignore_refusal)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __repr__(self) -> str:
        return f"share partition {self.key.group_id}:{self.partition.topic_partition}"


def ignore_refusal(outcome: Deferred[None]) -> None:
    """Take the outcome of a write for which nobody waits: it is logged where it was refused."""
    with suppress(KafkaError):
        outcome.result()


def _offsets(runs: Sequence[DeadLetters]) -> str:
    """Return the offsets of runs, neighbours as one range."""
    ranges: list[tuple[Offset, Offset]] = []
    for each in runs:
        first = each.first_offset
        if ranges and ranges[-1][1] + 1 == first:
            first = ranges.pop()[0]
        ranges.append((first, each.last_offset))
    return ", ".join(f"{first} to {last}" if first < last else f"{first}" for first, last in ranges)
