"""A partition that this broker leads for followers: carries out what the machine decides.

The machine knows offsets and times; here they meet the log, those who wait for it, the controller
and the clock.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from millstream.config.dynamic import DynamicConfig
from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import IsrMember, PartitionState
from millstream.model.metadata_store import MetadataStoreError, SessionEvent
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.replication.effects import (
    AdvanceHighWatermark,
    AwaitNewState,
    LeaderEffect,
    ProposeIsr,
    RetryProposal,
)
from millstream.replication.leader import FollowerFetch, LeaderReplication, ReplicationRules
from millstream.replication.read_replica import ReplicaView, preferred_read_replica
from millstream.runtime.metadata.metadata_cache import MetadataCache
from millstream.runtime.replicas.isr_updates import IsrProposal, IsrProposer, StateReader
from millstream.runtime.replicas.readable_bytes import ReadableBytes
from millstream.runtime.replicas.replication_throttle import ReplicationThrottle
from millstream.runtime.replicas.waiters import CommitCallback, CommitWaiters, tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.runtime.replicas.partition import Partition

log = logging.getLogger(__name__)


FETCHES_MISSED: Final = 4
"""How many long polls of a follower may pass before its last fetch says nothing of now."""
MIN_RECENT_MS: Final = 1_000.0


def _endless() -> float:
    return math.inf


@dataclass(slots=True)
class ReplicationContext:
    """What the replicas of one broker share."""

    broker_id: BrokerId
    clock: Clock
    config: DynamicConfig
    metadata: MetadataCache
    proposer: IsrProposer
    states: StateReader
    on_state_read: Callable[[TopicPartition, PartitionState], None]
    """Told what the metadata store says of a partition that was asked for."""
    lease_ms: Callable[[], float] = _endless
    """How long this broker's session with the metadata store surely lives on; asked when it
    matters, for a process that was paused acts before any timer of it runs.
    """
    sessions_lost: int = 0
    """How many sessions have expired: a leadership from before one may be another broker's."""
    failed_state_reads: int = 0
    """Reads of stored states in a row that did not reach the store."""
    committed_cuts: int = 0
    """How often a follower had to cut its log below what it knew to be committed: after an unclean
    election, and never otherwise."""
    isr_shrinks: int = 0
    """Replicas that went out of sync with partitions led here."""
    isr_expands: int = 0
    """Replicas that came in sync with partitions led here."""
    throttle: ReplicationThrottle = field(init=False)
    """How fast replicas that are out of sync may catch up."""

    def __post_init__(self) -> None:
        self.throttle = ReplicationThrottle(self.broker_id, self.clock, self.config)

    @property
    def broker_epoch(self) -> int:
        """The epoch under which the cluster knows this broker now."""
        return self.epoch_of(self.broker_id) or NO_BROKER_EPOCH

    def epoch_of(self, broker_id: BrokerId) -> int | None:
        """Return a live broker's epoch, None for one that is not alive."""
        node = self.metadata.brokers.get(broker_id)
        return None if node is None else node.epoch

    def isr_changed(self, before: PartitionState, after: PartitionState) -> None:
        """Count the replicas of a partition led here whose place in the ISR has changed."""
        if before.isr != after.isr:
            shrunk = (set(before.isr) - set(after.isr)) & set(after.replicas)
            self.isr_shrinks += len(shrunk)
            self.isr_expands += len(set(after.isr) - set(before.isr))

    def session_changed(self, event: SessionEvent) -> None:
        """Take note of what became of this broker's session."""
        self.sessions_lost += event is SessionEvent.EXPIRED
        if event is SessionEvent.CONNECTED:
            self._store_answers()

    def _store_answers(self) -> None:
        failed, self.failed_state_reads = self.failed_state_reads, 0
        if failed:
            log.info("stored states of partitions can be read again: %d reads failed", failed)

    def read_state(self, topic_partition: TopicPartition) -> None:
        """Have the stored state of a partition read, and shown to the broker if it is newer."""

        def take(outcome: Deferred[PartitionState]) -> None:
            try:
                state = outcome.result()
            except MetadataStoreError as error:  # not reached either: it is asked again later
                if not self.failed_state_reads:
                    log.warning("stored states of partitions cannot be read: %s", error)
                self.failed_state_reads += 1
            except Exception as error:
                log.warning("the stored state of %s cannot be read: %s", topic_partition, error)
            else:
                self._store_answers()
                self.on_state_read(topic_partition, state)

        self.states.read_state(topic_partition).on_done(take)


class LeaderRole:
    """One leadership of one partition with followers."""

    __slots__ = (
        "_context",
        "_deletions",
        "_durable_waiters",
        "_end_error",
        "_partition",
        "_readable",
        "_session",
        "_unanswered_since_ms",
        "machine",
    )

    def __init__(
        self, partition: Partition, state: PartitionState, context: ReplicationContext
    ) -> None:
        self._partition = partition
        self._context = context
        self._session = context.sessions_lost
        self._durable_waiters = CommitWaiters()
        self._deletions: dict[CommitCallback, Offset] = {}
        self._readable = ReadableBytes()
        self._unanswered_since_ms: float | None = None
        self._end_error: KafkaError | None = None
        """What :meth:`stop` was given: who asks from then on is answered with it."""
        self.machine = LeaderReplication(
            IsrMember(context.broker_id, context.broker_epoch),
            state,
            self._rules(),
            log_end_offset=partition.log.log_end_offset,
            high_watermark=partition.log.high_watermark,
            now_ms=context.clock.monotonic_ms(),
        )

    def _rules(self) -> ReplicationRules:
        config = self._context.config.current
        return ReplicationRules(
            min_insync_replicas=self._partition.config.min_insync_replicas,
            lag_time_max_ms=config.replica_lag_time_max_ms,
        )

    # What happens

    def begin(self) -> None:
        """Commit what is committed already by the state that this leadership began with."""
        self._carry_out(self.machine.on_append(self._partition.flushes.local_end_offset))

    def on_state(self, state: PartitionState) -> None:
        """Take over a newer state in which this broker leads."""
        self._unanswered_since_ms = None
        if newer(state, self.machine.state):
            self._session = self._context.sessions_lost
        end = self._partition.log.log_end_offset
        failed = self.machine.failed_proposals
        before = self.machine.state
        effects = self.machine.on_state(state, self._now_ms(), epoch_start_offset=end)
        self._context.isr_changed(before, self.machine.state)
        self._log_end_of_failures(failed)
        self._carry_out(effects)

    def config_changed(self) -> None:
        """Take over changed settings."""
        self._carry_out(self.machine.on_rules(self._rules()))

    def wrote(self, end_offset: Offset, size: int) -> None:
        """Take note of a batch in the log: followers may have it at once."""
        self._readable.wrote(end_offset, size)
        waiters = self._partition.replica_waiters
        if waiters:
            for waiter in tuple(waiters):
                waiter.data_arrived(size)

    def on_local_end(self, offset: Offset) -> None:
        """Take note that the log counts up to ``offset`` on this broker."""
        self._carry_out(self.machine.on_append(offset))
        self._durable_waiters.release(offset)

    def on_follower_fetch(
        self, broker_id: BrokerId, offset: Offset, broker_epoch: int, log_start_offset: Offset
    ) -> None:
        """Record a follower's fetch, before it is answered. KafkaError as the machine says."""
        live_epoch = self._context.epoch_of(broker_id)
        fetch = FollowerFetch(broker_id, offset, broker_epoch, live_epoch, log_start_offset)
        self._carry_out(self.machine.on_follower_fetch(fetch, self._now_ms()))
        if self._deletions:
            self._release_deletions()

    def on_same_fetch(
        self, broker_id: BrokerId, offset: Offset, broker_epoch: int, log_start_offset: Offset
    ) -> bool:
        """Record a follower's fetch that only says that it is still there; False, with nothing
        recorded, for any other, which is for :meth:`on_follower_fetch`.
        """
        fetch = FollowerFetch(broker_id, offset, broker_epoch, None, log_start_offset)
        return self._end_error is None and self.machine.on_same_fetch(fetch, self._now_ms())

    def check_shrink(self) -> None:
        """Look whether a follower lags for too long; called from time to time."""
        self._carry_out(self.machine.check_shrink(self._now_ms()))

    def stop(self, error: KafkaError) -> None:
        """Lead no more: nothing that comes later counts."""
        self._end_error = error
        self._durable_waiters.fail(error)
        deletions, self._deletions = self._deletions, {}
        for callback in deletions:
            tell(callback, error)

    # What writers ask

    @property
    def local_waits(self) -> int:
        """How many writes wait until they count on this broker."""
        return len(self._durable_waiters)

    @property
    def is_under_min_isr(self) -> bool:
        """True while too few replicas are in sync for acks=all."""
        return self.machine.is_under_min_isr

    @property
    def holds_lease(self) -> bool:
        """True while the session with the metadata store, under which this leadership began, surely
        lives: then no other broker leads.
        """
        context = self._context
        return self._session == context.sessions_lost and context.lease_ms() > 0

    @property
    def may_be_read(self) -> bool:
        """True while what is committed here is out of date by no more than moments: the lease
        holds, or everybody who could lead instead has fetched from here a moment ago. So reads go
        on while the metadata store is away from all, and end where another broker was elected.
        """
        if self.holds_lease:
            return True
        recent_ms = FETCHES_MISSED * self._context.config.current.replica_fetch_wait_max_ms
        return self.machine.was_followed_since(
            self._now_ms() - max(MIN_RECENT_MS, recent_ms),
            unclean=self._partition.config.unclean_leader_election_enable,
        )

    @property
    def may_write(self) -> bool:
        """False where writes need the lease (``leader.lease``) and it is over."""
        return not self._context.config.current.leader_lease or self.holds_lease

    def wait_until_committed(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back once a write is committed, with NOT_ENOUGH_REPLICAS_AFTER_APPEND where too few
        replicas are in sync by then (acks=all), or with what :meth:`stop` was given.
        """

        def committed(error: KafkaError | None) -> None:
            if error is None and self.machine.is_under_min_isr:
                error = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            callback(error)

        self._partition.wait_for_commit(last_offset, committed)

    def wait_until_local(self, last_offset: Offset, callback: CommitCallback) -> None:
        """Call back once a write counts on this broker, whatever the followers do (acks=1), or
        with what :meth:`stop` was given.
        """
        if last_offset < self.machine.log_end_offset:
            callback(None)
        elif self._end_error is not None:
            callback(self._end_error)
        else:
            self._durable_waiters.add(last_offset, callback)

    # What those who delete ask

    @property
    def low_watermark(self) -> Offset:
        """The smallest log start of all live replicas: below it nobody serves a record any more."""
        starts = [
            progress.log_start_offset
            for each, progress in self.machine.progress.items()
            if self._context.epoch_of(each) is not None
        ]
        return min(starts, default=self._partition.log.log_start_offset)

    def wait_until_deleted(self, offset: Offset, callback: CommitCallback) -> None:
        """Call back once the low watermark has reached ``offset``, or with what :meth:`stop` was
        given (Kafka: ``DelayedDeleteRecords``).
        """
        if self.low_watermark >= offset:
            callback(None)
        elif self._end_error is not None:
            callback(self._end_error)
        else:
            self._deletions[callback] = offset

    def forget_deletion(self, callback: CommitCallback) -> None:
        """Call back no more: who waited has been answered. Harmless for one that does not wait."""
        self._deletions.pop(callback, None)

    def _release_deletions(self) -> None:
        low_watermark = self.low_watermark
        for callback, offset in list(self._deletions.items()):
            if offset <= low_watermark:
                self._deletions.pop(callback, None)
                tell(callback, None)

    # What readers ask

    def is_throttled(self, broker_id: BrokerId) -> bool:
        """Tell whether a follower has to wait while the leader's rate limit is exceeded: where the
        replica of the leader is named, and never one in sync.
        """
        named = self._context.throttle.leader.names(self._partition)
        return named and broker_id not in self.machine.isr.isr

    @property
    def knows_what_is_committed(self) -> bool:
        """False from an election until the high watermark has reached the start of the leader's
        epoch (KIP-207): an end offset told before could go back.
        """
        return self.machine.high_watermark >= self.machine.leader_epoch_start_offset

    def preferred_read_replica(self, rack: str, fetch_offset: Offset) -> BrokerId | None:
        """Return from whom a consumer in ``rack`` should read, None for this broker (KIP-392). A
        follower that is out of sync serves nobody: it may fall behind further and further, and
        those who read from it with it (KAFKA-14372).
        """
        brokers = self._context.metadata.brokers
        me = brokers.get(self._context.broker_id)
        own = self._partition.log
        if me is None:
            return None
        leader = ReplicaView(me.broker_id, me.rack, own.log_start_offset, own.log_end_offset)
        now_ms = self._now_ms()
        followers = [
            ReplicaView(
                each,
                brokers[each].rack,
                progress.log_start_offset,
                progress.log_end_offset,
                now_ms - progress.last_caught_up_ms,
            )
            for each, progress in self.machine.progress.items()
            if each in brokers and progress.has_fetched and each in self.machine.isr.isr
        ]
        return preferred_read_replica(rack, fetch_offset, leader, followers)

    # Effects

    def _now_ms(self) -> float:
        return self._context.clock.monotonic_ms()

    def _carry_out(self, effects: tuple[LeaderEffect, ...]) -> None:
        if self._end_error is not None:
            return
        for effect in effects:
            match effect:
                case AdvanceHighWatermark(offset):
                    self._partition.commit(offset, self._readable.committed(offset))
                    self._tell_followers()
                case ProposeIsr():
                    self._propose(effect)
                case RetryProposal(attempt, delay_ms):
                    self._context.clock.call_later(delay_ms, partial(self._retry, attempt))
                case AwaitNewState():
                    self._ask_for_state()
                case _:
                    assert_never(effect)

    def _tell_followers(self) -> None:
        """Let followers know at once what is committed where consumers read from them; otherwise
        the next fetch tells them soon enough.
        """
        if self._context.config.current.selects_replicas_by_rack:
            for waiter in tuple(self._partition.replica_waiters):
                waiter.wake()

    def _propose(self, effect: ProposeIsr) -> None:
        context = self._context
        me, epoch = context.broker_id, context.broker_epoch
        proposal = IsrProposal(
            self._partition.topic_id,
            self._partition.topic_partition,
            effect.leader_epoch,
            effect.partition_epoch,
            tuple(
                IsrMember(me, epoch) if member.broker_id == me else member
                for member in effect.members
            ),
        )
        if not self.machine.failed_proposals:  # those that repeat one that failed are not logged
            log.info(
                "%s: proposing the ISR %s",
                proposal.topic_partition,
                [member.broker_id for member in proposal.isr],
            )
        context.proposer.propose(proposal).on_done(partial(self._answered, effect.attempt))

    def _answered(self, attempt: int, outcome: Deferred[PartitionState]) -> None:
        if self._end_error is not None:
            return
        answer: PartitionState | ErrorCode
        try:
            answer = outcome.result()
        except KafkaError as error:
            if not self.machine.failed_proposals:
                log.info("%s: the ISR was not changed: %s", self._partition.topic_partition, error)
            answer = error.error
            self._ask_for_state()
        else:
            self._unanswered_since_ms = None
        failed = self.machine.failed_proposals
        before = self.machine.state
        effects = self.machine.on_isr_answer(attempt, answer, self._now_ms())
        self._context.isr_changed(before, self.machine.state)
        self._log_end_of_failures(failed)
        self._carry_out(effects)

    def _log_end_of_failures(self, failed: int) -> None:
        """Log that a state has come after proposals that failed; ``failed`` counts them."""
        if failed and not self.machine.failed_proposals:
            log.info(
                "%s: the ISR is %s after %d proposals that failed",
                self._partition.topic_partition,
                list(self.machine.state.isr),
                failed,
            )

    def _retry(self, attempt: int) -> None:
        if self._end_error is None:
            self._carry_out(self.machine.retry_proposal(attempt))

    def _ask_for_state(self) -> None:
        """Read the stored state where no controller has said a word of this partition for long: it
        may be led elsewhere.
        """
        now_ms = self._now_ms()
        since_ms = self._unanswered_since_ms
        if since_ms is None:
            self._unanswered_since_ms = now_ms
        elif now_ms - since_ms > self._context.config.current.replica_lag_time_max_ms:
            self._unanswered_since_ms = now_ms
            self._context.read_state(self._partition.topic_partition)


def newer(state: PartitionState, known: PartitionState) -> bool:
    """Tell whether ``state`` was decided after ``known``."""
    return (state.leader_epoch, state.partition_epoch) > (
        known.leader_epoch,
        known.partition_epoch,
    )
