"""Rebalances: the transition of a group from one generation to the next.

A rebalance has two halves. In the **join phase** (PREPARING_REBALANCE) every member sends
JoinGroup again and waits; it ends when all have, when the rebalance timeout has passed, or, for a
group that was empty, when no member has joined for the initial delay. Then the members of the new
generation are known, and each gets its JoinGroup response, the leader's with all members' metadata.
In the **sync phase** (COMPLETING_REBALANCE) the leader sends the assignment with SyncGroup and the
others wait for it.

Nothing is written to the log until the leader's assignment has arrived or the group has become
empty. Kafka: the ``classicGroup...`` methods of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.member import NO_ASSIGNMENT, Member
from millstream.coordinator.group.records import group_record
from millstream.coordinator.group.responses import (
    assigned,
    join_refused,
    joined,
    sync_refused,
)
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.group.states import GroupState
from millstream.coordinator.group.timers import GroupDeadlines, Timer, TimerKey
from millstream.coordinator.result import Instant, R, Result
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.sync_group import SyncGroupResponse

SHORTEST_SECOND_WAIT_MS: Final = 1_000


class Rebalances:
    """Runs the rebalances of the groups of one shard."""

    def __init__(self, settings: GroupSettings, deadlines: GroupDeadlines) -> None:
        self._settings = settings
        self._deadlines = deadlines

    @property
    def session_count(self) -> int:
        """The approximate number of members, joined or pending, of all groups; deadlines of groups
        are counted too.
        """
        return len(self._deadlines)

    # Members come

    def add_member(
        self,
        group: ClassicGroup,
        member: Member,
        reply: Deferred[JoinGroupResponse],
        now: Instant,
        result: Result[R],
    ) -> None:
        """Add a new member, whose JoinGroup is parked until the rebalance it starts has ended."""
        member.is_new = True
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is GroupState.EMPTY
        ):
            group.new_member_added = True
        group.add(member, reply)
        # A new member cannot send heartbeats while it waits, and a client that gave up leaves a
        # member behind at every try; so a new member's session ends after this time, and a client
        # that still runs joins again.
        timeout_ms = self._settings.new_member_join_timeout_ms
        self.start_session(group, member.member_id, timeout_ms, now)
        self.prepare_or_complete(group, now, result)

    def renew_session(self, group: ClassicGroup, member: Member, now: Instant) -> None:
        """Count the member's session timeout from now."""
        self.start_session(group, member.member_id, member.session_timeout_ms, now)

    def start_session(
        self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Instant
    ) -> None:
        """Start the session of a member, or of a pending member id; it expires after
        ``timeout_ms``.
        """
        key = TimerKey(Timer.SESSION, group.group_id, member_id)
        self._deadlines.set(key, now.monotonic_ms + timeout_ms)

    # Members go

    def drop_member(self, group: ClassicGroup, member: Member, result: Result[R]) -> None:
        """Remove a member; its parked requests are answered with UNKNOWN_MEMBER_ID."""
        self.end_session(group, member.member_id)
        if member.awaiting_join is not None:
            result.answer(member.awaiting_join, join_refused(ErrorCode.UNKNOWN_MEMBER_ID))
            group.park_join(member, None)
        if member.awaiting_sync is not None:
            result.answer(member.awaiting_sync, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
            member.awaiting_sync = None
        group.remove(member.member_id)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the session of a member, or of a pending member id."""
        self._deadlines.cancel(TimerKey(Timer.SESSION, group.group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """Cancel every deadline of a removed group."""
        for member_id in (*group.members, *group.pending_join):
            self.end_session(group, member_id)
        for timer in (Timer.INITIAL_JOIN, Timer.JOIN, Timer.SYNC):
            self._deadlines.cancel(TimerKey(timer, group.group_id))

    # The join phase

    def prepare_or_complete(self, group: ClassicGroup, now: Instant, result: Result[R]) -> None:
        """Start a rebalance, or end the join phase of the present one if all have joined."""
        if group.can_rebalance():
            self.prepare(group, now, result)
        else:
            self.complete_if_all_joined(group, now, result)

    def prepare(self, group: ClassicGroup, now: Instant, result: Result[R]) -> None:
        """Start a rebalance: all members have to rejoin."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.abandon_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, now, result)
        group.pending_sync.clear()
        self._deadlines.cancel(TimerKey(Timer.SYNC, group.group_id))
        is_initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, now)
        if is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._wait_for_first_members(group, now, delay_ms, remaining_ms)
        elif group.has_all_members_joined():
            self.complete_join(group, now, result)
        else:
            self._wait_for_members(group, now, group.rebalance_timeout_ms())

    def complete_if_all_joined(self, group: ClassicGroup, now: Instant, result: Result[R]) -> None:
        """End the join phase when all have joined; the initial one always lasts its delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.has_all_members_joined()
        ):
            self.complete_join(group, now, result)

    def end_initial_delay(self, group: ClassicGroup, now: Instant, result: Result[R]) -> None:
        """End the initial join phase, unless a member joined during the delay that has passed."""
        remaining_ms = group.initial_remaining_ms
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, remaining_ms)
            remaining_ms = max(remaining_ms - group.initial_delay_ms, 0)
            self._wait_for_first_members(group, now, delay_ms, remaining_ms)
        else:
            self.complete_join(group, now, result)

    def complete_join(self, group: ClassicGroup, now: Instant, result: Result[R]) -> None:
        """Begin the next generation with the members that joined.

        Dynamic members that did not are removed; static ones stay until their session expires. If
        only such are left, the join phase continues.
        """
        self._deadlines.cancel(TimerKey(Timer.JOIN, group.group_id))
        self._deadlines.cancel(TimerKey(Timer.INITIAL_JOIN, group.group_id))
        for member in list(group.members.values()):
            if member.awaiting_join is None and not member.is_static:
                self.drop_member(group, member, result)
        if group.members and not group.elect_leader_among_joined():
            # Not at once, even if the members' rebalance timeout is 0.
            timeout_ms = max(group.rebalance_timeout_ms(), SHORTEST_SECOND_WAIT_MS)
            self._wait_for_members(group, now, timeout_ms)
            return
        group.start_next_generation(now)
        if group.state is GroupState.EMPTY:
            result.settled(group_record(group, {}))
            return
        for member in group.members.values():
            if member.awaiting_join is not None:
                result.answer(member.awaiting_join, joined(group, member.member_id))
                group.park_join(member, None)
            self.renew_session(group, member, now)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._deadlines.set(
            TimerKey(Timer.SYNC, group.group_id), now.monotonic_ms + group.rebalance_timeout_ms()
        )

    def _wait_for_members(self, group: ClassicGroup, now: Instant, timeout_ms: int) -> None:
        self._deadlines.set(TimerKey(Timer.JOIN, group.group_id), now.monotonic_ms + timeout_ms)

    def _wait_for_first_members(
        self, group: ClassicGroup, now: Instant, delay_ms: int, remaining_ms: int
    ) -> None:
        group.initial_delay_ms, group.initial_remaining_ms = delay_ms, remaining_ms
        self._deadlines.set(
            TimerKey(Timer.INITIAL_JOIN, group.group_id), now.monotonic_ms + delay_ms
        )

    # The sync phase

    def finish_sync(
        self,
        group: ClassicGroup,
        assignments: Mapping[str, bytes],
        now: Instant,
        result: Result[R],
    ) -> None:
        """Answer every waiting SyncGroup with the member's assignment; the group becomes stable."""
        for member in group.members.values():
            member.assignment = assignments[member.member_id]
        group.transition_to(GroupState.STABLE, now)
        self._answer_sync(group, lambda member: assigned(group, member), now, result)

    def abandon_sync(
        self, group: ClassicGroup, error: ErrorCode, now: Instant, result: Result[R]
    ) -> None:
        """Answer every waiting SyncGroup with ``error`` and discard the assignments."""
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
        self._answer_sync(group, lambda _: sync_refused(error), now, result)

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        """Record that a member has sent SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._deadlines.cancel(TimerKey(Timer.SYNC, group.group_id))

    def _answer_sync(
        self,
        group: ClassicGroup,
        response: Callable[[Member], SyncGroupResponse],
        now: Instant,
        result: Result[R],
    ) -> None:
        for member in group.members.values():
            if member.awaiting_sync is not None:
                result.answer(member.awaiting_sync, response(member))
                member.awaiting_sync = None
                self.renew_session(group, member, now)

    # Deadlines

    def expire(self, group: ClassicGroup, key: TimerKey, now: Instant, result: Result[R]) -> None:
        """Handle a deadline that has passed."""
        match key.timer:
            case Timer.SESSION:
                self._expire_session(group, key.member_id, now, result)
            case Timer.INITIAL_JOIN:
                self.end_initial_delay(group, now, result)
            case Timer.JOIN:
                self.complete_join(group, now, result)
            case Timer.SYNC:
                self._expire_sync(group, now, result)

    def _expire_session(
        self, group: ClassicGroup, member_id: str, now: Instant, result: Result[R]
    ) -> None:
        if member_id in group.pending_join:
            group.remove(member_id)
            if group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined():
                self.complete_join(group, now, result)
            return
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat():
            return
        self.drop_member(group, member, result)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, now, result)
        elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_members_joined():
            self.complete_join(group, now, result)

    def _expire_sync(self, group: ClassicGroup, now: Instant, result: Result[R]) -> None:
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        late = [group.members[member_id] for member_id in group.pending_sync]
        for member in late:
            self.drop_member(group, member, result)
        if late:
            self.prepare(group, now, result)
