"""The leader of one partition: the progress of its followers, the high watermark, the ISR. Pure: no
clock, no I/O.

The leader tracks each follower by its fetch offsets: a fetch from offset n says that the follower
has everything below n. The high watermark and ISR changes follow from that. Only the controller
writes the ISR; the leader proposes (see ``isr``). Times are of a monotonic clock. Kafka:
``Partition``, ``Replica``.

The high watermark moves to the smallest log end of the maximal ISR, and only while the committed
ISR has ``min.insync.replicas`` members (KIP-966): so every eligible leader replica that the
controller keeps beside a small ISR holds all that is committed. When the setting becomes smaller,
eligible leader replicas are waited for until the controller keeps none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from millstream.model.broker import NO_BROKER_EPOCH, BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import IsrMember, PartitionState
from millstream.model.offsets import NO_OFFSET, Offset
from millstream.replication.effects import (
    AdvanceHighWatermark,
    AwaitNewState,
    LeaderEffect,
    ProposeIsr,
    RetryProposal,
)
from millstream.replication.isr import Committed, Isr, Pending, PendingExpand, PendingShrink

_NEWER_STATE: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors of a controller whose state is not the one that the proposal is based on."""


@dataclass(frozen=True, slots=True)
class ReplicationRules:
    """The settings of a leader."""

    min_insync_replicas: int = 1
    lag_time_max_ms: float = 30_000
    retry_first_ms: float = 100
    """How long nothing is proposed after a proposal that has failed; twice as long after each
    further one.
    """
    retry_max_ms: float = 1_000
    """The longest such pause."""


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower, from its fetches."""

    log_end_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    last_caught_up_ms: float = float("-inf")
    broker_epoch: int = NO_BROKER_EPOCH
    has_fetched: bool = False
    """True once it has fetched in this leader epoch."""
    last_fetch_ms: float = float("-inf")
    last_fetch_leader_end: Offset = NO_OFFSET
    not_before_ms: float = float("-inf")
    """It is not proposed for the ISR before this moment."""

    def fetched(self, fetch: FollowerFetch, *, leader_end: Offset, now_ms: float) -> None:
        """Record a fetch (Kafka: ``Replica.updateFetchStateOrThrow``).

        It is caught up now if it fetches from the leader's log end; it was caught up at its
        previous fetch if it fetches from what was the log end then.
        """
        if fetch.offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif self.has_fetched and fetch.offset >= self.last_fetch_leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch.offset
        self.log_start_offset = fetch.log_start_offset
        self.broker_epoch = fetch.broker_epoch
        self.has_fetched = True
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end = leader_end


class FollowerFetch(NamedTuple):
    """One fetch of a follower. ``live_epoch`` is the broker epoch of the follower's present
    registration, None if it is not registered.
    """

    broker_id: BrokerId
    offset: Offset
    broker_epoch: int = NO_BROKER_EPOCH
    live_epoch: int | None = None
    log_start_offset: Offset = NO_OFFSET


class LeaderReplication:
    """The replicas of one partition as their leader sees them, for one leadership.

    ``log_end_offset`` is the log end that counts on this broker: the flushed end if the flush
    policy is ``ack``.
    """

    __slots__ = (
        "_attempt",
        "_broker_epoch",
        "_broker_id",
        "_in_doubt",
        "_rules",
        "_since_ms",
        "failed_proposals",
        "followers",
        "high_watermark",
        "isr",
        "leader_epoch_start_offset",
        "log_end_offset",
        "state",
    )

    def __init__(
        self,
        member: IsrMember,
        state: PartitionState,
        rules: ReplicationRules,
        *,
        log_end_offset: Offset,
        high_watermark: Offset,
        now_ms: float,
    ) -> None:
        """Become leader: nothing is known of followers, and nothing is pending."""
        assert state.leader == member.broker_id, "a broker leads what the controller gave it"
        self._broker_id = member.broker_id
        self._broker_epoch = member.broker_epoch
        self._rules = rules
        self._attempt = 0
        self.log_end_offset = log_end_offset
        self.high_watermark = high_watermark
        self._begin(state, now_ms, log_end_offset)

    def _begin(self, state: PartitionState, now_ms: float, epoch_start_offset: Offset) -> None:
        self.state = state
        self.isr: Isr = Committed(state.isr)
        self._in_doubt = False
        """True while an attempt with an unknown outcome may still be written."""
        self.failed_proposals = 0
        """Consecutive proposals that the controller has not answered with a state."""
        self._since_ms = now_ms
        self.leader_epoch_start_offset = epoch_start_offset
        self.followers: dict[BrokerId, FollowerProgress] = {
            each: FollowerProgress(
                # A member of the ISR has one lag period to send its first fetch.
                last_caught_up_ms=now_ms if each in state.isr else float("-inf")
            )
            for each in state.replicas
            if each != self._broker_id
        }

    # Changes from the controller

    def on_state(
        self, state: PartitionState, now_ms: float, *, epoch_start_offset: Offset | None = None
    ) -> tuple[LeaderEffect, ...]:
        """Apply a state from the controller in which this broker is still the leader.

        An older partition epoch changes nothing. A higher leader epoch begins a new leadership; the
        same one keeps the followers' progress, adopts the ISR and evaluates the high watermark
        again (KAFKA-13091, KAFKA-13254). ``epoch_start_offset`` is the log end, if not all of the
        log counts yet.
        """
        assert state.leader == self._broker_id
        if (state.leader_epoch, state.partition_epoch) <= (
            self.state.leader_epoch,
            self.state.partition_epoch,
        ):
            return ()
        if state.leader_epoch > self.state.leader_epoch:
            start = self.log_end_offset if epoch_start_offset is None else epoch_start_offset
            self._begin(state, now_ms, start)
        else:
            self._adopt(state)
        return self._advance()

    def _adopt(self, state: PartitionState) -> None:
        self.state = state
        self.isr = Committed(state.isr)
        self._in_doubt = False
        self.failed_proposals = 0
        before = self.followers
        self.followers = {
            each: before.get(each) or FollowerProgress()
            for each in state.replicas
            if each != self._broker_id
        }

    def on_rules(self, rules: ReplicationRules) -> tuple[LeaderEffect, ...]:
        """Apply changed settings; a smaller ``min.insync.replicas`` may commit more."""
        self._rules = rules
        return self._advance()

    # Appends

    def on_append(self, log_end_offset: Offset) -> tuple[LeaderEffect, ...]:
        """Record that this broker's own log counts up to ``log_end_offset``."""
        self.log_end_offset = log_end_offset
        return self._advance()

    @property
    def is_under_min_isr(self) -> bool:
        """True while too few are in sync for acks=all: errors 19 and 20."""
        return len(self.isr.isr) < self.effective_min_isr

    @property
    def effective_min_isr(self) -> int:
        """``min.insync.replicas``, or all replicas where there are fewer."""
        return min(self._rules.min_insync_replicas, len(self.state.replicas))

    # Fetches of followers

    def on_follower_fetch(self, fetch: FollowerFetch, now_ms: float) -> tuple[LeaderEffect, ...]:
        """Record a fetch whose epoch and offset were validated, before it is answered.

        KafkaError UNKNOWN_LEADER_EPOCH for a broker that is not a replica (one of the two has not
        applied a reassignment yet), NOT_LEADER_OR_FOLLOWER for a stale broker epoch.
        """
        progress = self.followers.get(fetch.broker_id)
        if progress is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"broker {fetch.broker_id} is not a replica"
            )
        if NO_BROKER_EPOCH != fetch.broker_epoch < progress.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the fetch has a stale broker epoch")
        progress.fetched(fetch, leader_end=self.log_end_offset, now_ms=now_ms)
        effects = self._maybe_expand(fetch, progress, now_ms)
        return (*effects, *self._advance()) if effects else self._advance()

    def on_same_fetch(self, fetch: FollowerFetch, now_ms: float) -> bool:
        """Record a fetch of an ISR member that repeats its last offset at the log end: only the
        time changes, with no effects. Return False, recording nothing, for any other fetch; the
        caller then uses :meth:`on_follower_fetch`.
        """
        progress = self.followers.get(fetch.broker_id)
        if (
            progress is None
            or fetch.broker_id not in self.isr.isr
            or not progress.has_fetched
            or progress.broker_epoch != fetch.broker_epoch
            or progress.log_start_offset != fetch.log_start_offset
            or not progress.log_end_offset == fetch.offset >= self.log_end_offset
        ):
            return False
        progress.fetched(fetch, leader_end=self.log_end_offset, now_ms=now_ms)
        return True

    def _maybe_expand(
        self, fetch: FollowerFetch, progress: FollowerProgress, now_ms: float
    ) -> tuple[LeaderEffect, ...]:
        if not isinstance(self.isr, Committed) or fetch.broker_id in self.isr.isr:
            return ()
        if not self._may_join(fetch, progress) or now_ms < progress.not_before_ms:
            return ()
        self._attempt += 1
        members = self._members((*self.isr.isr, fetch.broker_id))
        self.isr = PendingExpand(self.isr.isr, fetch.broker_id, self._attempt, now_ms, members)
        return (self._proposal(self.isr),)

    def _may_join(self, fetch: FollowerFetch, progress: FollowerProgress) -> bool:
        """Tell whether a follower has everything a leader must have, and still has the broker epoch
        it fetched with.

        It needs the leader epoch's start as well as the high watermark (KAFKA-7128): a previous
        leader may have committed records above this leader's high watermark, but never above that
        start.
        """
        return (
            progress.log_end_offset >= self.high_watermark
            and progress.log_end_offset >= self.leader_epoch_start_offset
            and fetch.live_epoch is not None
            and fetch.live_epoch == fetch.broker_epoch
        )

    def check_shrink(self, now_ms: float) -> tuple[LeaderEffect, ...]:
        """Propose to remove the followers that have not caught up for
        ``replica.lag.time.max.ms``.
        """
        if not isinstance(self.isr, Committed):
            return ()
        if now_ms - self._since_ms <= self._rules.lag_time_max_ms:
            return ()
        lagging = tuple(
            each
            for each in self.isr.isr
            if each != self._broker_id and self._lags(self.followers.get(each), now_ms)
        )
        if not lagging:
            return ()
        self._attempt += 1
        members = self._members(each for each in self.isr.isr if each not in lagging)
        self.isr = PendingShrink(self.isr.isr, self._attempt, now_ms, members)
        return (self._proposal(self.isr),)

    def _lags(self, progress: FollowerProgress | None, now_ms: float) -> bool:
        if progress is None:
            return True  # not a replica any more
        if progress.log_end_offset == self.log_end_offset:
            return False
        return now_ms - progress.last_caught_up_ms > self._rules.lag_time_max_ms

    @property
    def progress(self) -> Mapping[BrokerId, FollowerProgress]:
        """The progress of each follower."""
        return self.followers

    # Outcomes of a proposal

    def on_isr_answer(
        self, attempt: int, answer: PartitionState | ErrorCode, now_ms: float
    ) -> tuple[LeaderEffect, ...]:
        """Handle the controller's response to a proposal, or the error of the request.

        Success is adopted. INELIGIBLE_REPLICA and OPERATION_NOT_ATTEMPTED mean that nothing was
        written, and the ISR is unchanged. After anything else, a time-out above all, the controller
        may hold the proposed ISR or come to hold it: the maximal ISR stays, and the proposal is
        repeated or newer state is waited for.
        """
        if isinstance(answer, PartitionState):
            return self._answered_with_state(attempt, answer, now_ms)
        pending = self._pending(attempt)
        if pending is None:
            return ()
        pause_ms = self._pause_after_failure()
        if answer is ErrorCode.INELIGIBLE_REPLICA and self._may_revert_refused(pending, now_ms):
            return self._revert(pending, now_ms + pause_ms)
        if answer is ErrorCode.OPERATION_NOT_ATTEMPTED and not self._in_doubt:
            return self._revert(pending, now_ms + pause_ms)
        if answer in _NEWER_STATE:
            return (AwaitNewState(), RetryProposal(attempt, pause_ms))
        self._in_doubt |= answer not in (
            ErrorCode.INELIGIBLE_REPLICA,
            ErrorCode.OPERATION_NOT_ATTEMPTED,
        )
        return (RetryProposal(attempt, pause_ms),)

    def _pending(self, attempt: int) -> Pending | None:
        """Return the proposal with number ``attempt``; None if it is not pending any more."""
        pending = self.isr
        return None if isinstance(pending, Committed) or pending.attempt != attempt else pending

    def _answered_with_state(
        self, attempt: int, state: PartitionState, now_ms: float
    ) -> tuple[LeaderEffect, ...]:
        if state.leader != self._broker_id or state.leader_epoch != self.state.leader_epoch:
            return (AwaitNewState(),)
        if state.partition_epoch < self.state.partition_epoch:
            return ()
        if state.partition_epoch > self.state.partition_epoch:
            return self.on_state(state, now_ms)
        if self._pending(attempt) is None:
            # A push delivered it before, and another proposal may be based on it by now: the high
            # watermark waits for the replicas that proposal adds.
            return ()
        # The controller already has the proposed ISR.
        self._adopt(state)
        return self._advance()

    def _may_revert_refused(self, pending: Pending, now_ms: float) -> bool:
        """Tell whether a refused proposal may be dropped.

        An earlier attempt without a response may still be in a controller's socket buffer and be
        written after the refusal; the lag time is waited for it.
        """
        return not self._in_doubt or now_ms - pending.since_ms > self._rules.lag_time_max_ms

    def _pause_after_failure(self) -> float:
        """Count a failed proposal; return how long to wait before the next one."""
        rules = self._rules
        # The exponent is bounded: a store may be unreachable for days.
        pause_ms = rules.retry_first_ms * (1 << min(self.failed_proposals, 20))
        self.failed_proposals += 1
        return min(pause_ms, rules.retry_max_ms)

    def _revert(self, pending: Pending, not_before_ms: float) -> tuple[LeaderEffect, ...]:
        self.isr = Committed(pending.isr)
        self._in_doubt = False
        if isinstance(pending, PendingExpand):
            progress = self.followers.get(pending.added)
            if progress is not None:
                progress.not_before_ms = not_before_ms
        return self._advance()

    def retry_proposal(self, attempt: int) -> tuple[LeaderEffect, ...]:
        """Propose again what is still pending under ``attempt``."""
        pending = self._pending(attempt)
        return () if pending is None else (self._proposal(pending),)

    def _proposal(self, pending: Pending) -> ProposeIsr:
        return ProposeIsr(
            pending.attempt,
            self.state.leader_epoch,
            self.state.partition_epoch,
            pending.members,
        )

    def _members(self, broker_ids: Iterable[BrokerId]) -> tuple[IsrMember, ...]:
        return tuple(map(self._member, broker_ids))

    def _member(self, broker_id: BrokerId) -> IsrMember:
        """Return a member with the broker epoch it fetched with (KIP-903); -1 if it has not fetched
        in this leadership.
        """
        if broker_id == self._broker_id:
            return IsrMember(broker_id, self._broker_epoch)
        progress = self.followers.get(broker_id)
        return IsrMember(broker_id, NO_BROKER_EPOCH if progress is None else progress.broker_epoch)

    # The high watermark

    @property
    def waited_for(self) -> tuple[BrokerId, ...]:
        """The replicas that the high watermark waits for: every one that the controller may elect.

        The controller keeps eligible leader replicas while the ISR is too small for anything to be
        committed. If this leader's ``min.insync.replicas`` is smaller than the controller's, they
        count until the controller's state no longer has them.
        """
        elr = self.state.elr
        return (*self.isr.maximal_isr, *elr) if elr else self.isr.maximal_isr

    def was_followed_since(self, moment_ms: float, *, unclean: bool) -> bool:
        """Tell whether every replica that may be elected in place of this leader has fetched from
        it in this leadership at or after ``moment_ms``: then no other broker had become leader
        before that moment. With ``unclean`` elections that is every replica.
        """
        electable = self.state.replicas if unclean else self.waited_for
        return all(
            each == self._broker_id
            or (
                ((follower := self.followers.get(each)) is not None)
                and follower.last_fetch_ms >= moment_ms
            )
            for each in electable
        )

    def _advance(self) -> tuple[LeaderEffect, ...]:
        if self.is_under_min_isr:
            return ()
        committed = self.log_end_offset
        followers = self.followers
        for each in self.waited_for:
            if each == self._broker_id:
                continue
            progress = followers.get(each)
            end = NO_OFFSET if progress is None else progress.log_end_offset
            committed = min(committed, end)
        if committed <= self.high_watermark:
            return ()
        self.high_watermark = committed
        return (AdvanceHighWatermark(committed),)
