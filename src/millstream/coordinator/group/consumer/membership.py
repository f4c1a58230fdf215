"""What heartbeats of the consumer protocol and requests of classic members have in common.

Kafka: the ``consumerGroup…`` methods of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from millstream.coordinator.group.consumer import regular_expressions
from millstream.coordinator.group.consumer.assignors import assignors
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.draft import Draft
from millstream.coordinator.group.consumer.member import ConsumerMember
from millstream.coordinator.group.consumer.migration import downgraded
from millstream.coordinator.group.consumer.reconciliation import Owned
from millstream.coordinator.group.consumer.records import expression_record
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.modern.member import STATIC_LEAVING_EPOCH, MemberState
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.coordinator.group.rebalance import Rebalances
from millstream.coordinator.group.records import assignments_of, group_record
from millstream.coordinator.group.settings import MAX_SESSIONS_PER_SHARD, GroupSettings
from millstream.coordinator.group.timers import GroupDeadlines, Timer, TimerKey
from millstream.coordinator.result import BackgroundTask, Instant, R, Result
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError

if TYPE_CHECKING:
    from millstream.coordinator.group.join_group import Caller

SHORTEST_EXPRESSION_INTERVAL_MS: Final = 10_000
"""The shortest time between two resolutions of a group's expressions; fixed in Kafka."""

MEMBER_TIMERS: Final = (Timer.SESSION, Timer.REVOCATION, Timer.MEMBER_JOIN, Timer.MEMBER_SYNC)


class Membership:
    """The members of the consumer groups of one shard."""

    def __init__(
        self,
        settings: GroupSettings,
        groups: Groups,
        topics: TopicsImage,
        deadlines: GroupDeadlines,
        rebalances: Rebalances,
    ) -> None:
        self.settings = settings
        self.groups = groups
        self.topics = topics
        self.assignors = assignors(settings.consumer.assignors)
        self._deadlines = deadlines
        self._rebalances = rebalances

    # Groups and members

    def draft(self, group: ConsumerGroup, now: Instant) -> Draft:
        """Return a draft of a group that is there."""
        return Draft(group, self.topics, now)

    def new_draft(self, group_id: str, now: Instant) -> Draft:
        """Return a draft of a new group."""
        return Draft(ConsumerGroup(group_id), self.topics, now, is_new=True)

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raise GROUP_MAX_SIZE_REACHED if the group, or this shard, has no room for a member."""
        limit = self.settings.consumer.max_size
        if member_id in group.members:
            return
        if len(group.members) >= limit or len(self._deadlines) >= MAX_SESSIONS_PER_SHARD:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def joining_member(
        self, draft: Draft, member_id: str, instance_id: str | None, *, is_classic: bool
    ) -> ConsumerMember:
        """Return the member that joins: the one there is, the static one whose place it takes, or a
        new one.

        UNRELEASED_INSTANCE_ID if another process has the instance id and both speak the consumer
        protocol.
        """
        group = draft.group
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        old = group.static_member(instance_id)
        if old is None:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        has_left = old.member_epoch == STATIC_LEAVING_EPOCH
        if not has_left and not is_classic and not old.is_classic:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {old.member_id} member.",
            )
        return draft.replace_static(old, member_id)

    def static_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str
    ) -> ConsumerMember:
        """Return the static member; UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another process has
        its instance id. An empty member id is that of an administrator.
        """
        member = group.static_member(instance_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member_id not in ("", member.member_id):
            raise KafkaError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member "
                f"{member.member_id}.",
            )
        return member

    # Subscriptions, targets, assignments

    def update(self, draft: Draft, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Record a member's new metadata and bump the group epoch if need be; return True if its
        subscription has changed.
        """
        names_changed = draft.put_metadata(member, updated)
        regex_changed = updated.regex != member.regex
        if regex_changed:
            draft.forget_expressions()
        group = draft.group
        is_resolved = regex_changed and (not updated.regex or updated.regex in group.expressions)
        # An expression that is not resolved yet bumps the epoch when it is.
        bump = group.group_epoch == 0 or names_changed or is_resolved
        if bump or group.needs_refresh:
            draft.refresh(bump=bump)
        return names_changed or regex_changed

    def assign(
        self, draft: Draft, member_id: str, owned: Owned | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Bring the target up to date and the member towards it; return the member."""
        times = self.settings.consumer.times_of(draft.group.group_id)
        draft.update_target(self.assignors, interval_ms=times.assignment_interval_ms)
        return draft.reconcile(member_id, owned, subscription_changed=subscription_changed)

    def commit(self, draft: Draft, result: Result[R], *, is_atomic: bool = True) -> None:
        """Put a draft in force and set the group's own deadline."""
        largest = self.settings.max_record_bytes if is_atomic else None
        draft.commit(self.groups, result, largest_bytes=largest)
        group = draft.group
        times = self.settings.consumer.times_of(group.group_id)
        delay_ms = draft.assignment_delay_ms(times.assignment_interval_ms)
        key = TimerKey(Timer.ASSIGNMENT, group.group_id)
        if delay_ms is None or group.is_empty:
            self._deadlines.cancel(key)
        else:
            self._deadlines.set(key, draft.now.monotonic_ms + delay_ms)

    # Deadlines

    def renew_session(self, group_id: str, member: ConsumerMember, now: Instant) -> None:
        """Count a member's session timeout from now."""
        timeout_ms = self.settings.consumer.times_of(group_id).session_timeout_ms
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        self.set_timer(Timer.SESSION, group_id, member.member_id, now.monotonic_ms + timeout_ms)

    def watch_revocation(
        self,
        group_id: str,
        member: ConsumerMember,
        now: Instant,
        *,
        before: ConsumerMember | None = None,
    ) -> None:
        """Give a member its rebalance timeout to return partitions, if it has to return others than
        ``before``. Classic members have timeouts for joining and syncing instead.
        """
        if member.is_classic or member.state is not MemberState.UNREVOKED_PARTITIONS:
            self.cancel_timer(Timer.REVOCATION, group_id, member.member_id)
        elif before is None or before.pending_revocation != member.pending_revocation:
            deadline_ms = now.monotonic_ms + member.rebalance_timeout_ms
            self.set_timer(Timer.REVOCATION, group_id, member.member_id, deadline_ms)

    def set_timer(self, timer: Timer, group_id: str, member_id: str, deadline_ms: float) -> None:
        """Set a deadline of a member."""
        self._deadlines.set(TimerKey(timer, group_id, member_id), deadline_ms)

    def start_timer(self, timer: Timer, group_id: str, member_id: str, deadline_ms: float) -> None:
        """Set a deadline of a member unless it has one."""
        key = TimerKey(timer, group_id, member_id)
        if key not in self._deadlines:
            self._deadlines.set(key, deadline_ms)

    def cancel_timer(self, timer: Timer, group_id: str, member_id: str) -> None:
        """Cancel a deadline of a member."""
        self._deadlines.cancel(TimerKey(timer, group_id, member_id))

    def forget(self, group: ConsumerGroup) -> None:
        """Cancel every deadline of a group that ends."""
        self.forget_members(group.group_id, group.members)
        self._deadlines.cancel(TimerKey(Timer.ASSIGNMENT, group.group_id))

    def forget_members(self, group_id: str, member_ids: Iterable[str]) -> None:
        """Cancel every deadline of members that go."""
        for member_id in member_ids:
            for timer in MEMBER_TIMERS:
                self.cancel_timer(timer, group_id, member_id)

    def expire(self, group: ConsumerGroup, key: TimerKey, now: Instant, result: Result[R]) -> None:
        """Handle a deadline that has passed."""
        if key.timer is Timer.ASSIGNMENT:
            draft = self.draft(group, now)
            times = self.settings.consumer.times_of(group.group_id)
            try:
                draft.update_target(self.assignors, interval_ms=times.assignment_interval_ms)
            except KafkaError:
                return  # the next heartbeat tries again, and its sender hears why
            self.commit(draft, result, is_atomic=False)
            return
        member = group.members.get(key.member_id)
        if member is not None:
            self.fence(group, (member,), now, result, is_atomic=False)

    def start_deadlines(self, group: ConsumerGroup, now: Instant) -> None:
        """Give every member of a loaded group a new session."""
        for member in group.members.values():
            self.renew_session(group.group_id, member, now)
            self.watch_revocation(group.group_id, member, now)
        if group.members and group.group_epoch > group.assignment_epoch:
            self._deadlines.set(TimerKey(Timer.ASSIGNMENT, group.group_id), now.monotonic_ms)

    # Members go

    def fence(
        self,
        group: ConsumerGroup,
        members: Iterable[ConsumerMember],
        now: Instant,
        result: Result[R],
        *,
        is_atomic: bool = True,
    ) -> None:
        """Remove members. If only classic members stay, the group becomes a classic group."""
        gone = [member.member_id for member in members]
        if (
            len(gone) == 1
            and self.may_downgrade(group, gone[0])
            and self.downgrade(group, self.draft(group, now), result, leaving=gone[0])
        ):
            return
        draft = self.draft(group, now)
        draft.remove(*gone)
        self.commit(draft, result, is_atomic=is_atomic)
        self.forget_members(group.group_id, gone)

    def may_downgrade(
        self, group: ConsumerGroup, leaving: str, *, is_replaced: bool = False
    ) -> bool:
        """True if the group becomes a classic group when a member goes."""
        if group.members[leaving].is_classic:
            return False
        others = len(group.members) - 1
        return (
            group.classic_count == others
            and (others > 0 or is_replaced)
            and self.settings.consumer.migration_policy.allows_downgrade
            and others + is_replaced <= self.settings.max_size
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        draft: Draft,
        result: Result[R],
        *,
        leaving: str | None,
    ) -> bool:
        """Make a classic group of a consumer group without the member that leaves.

        ``draft`` has what has happened in the same operation before; ``group`` is the group that
        was there. All members have to join again. Returns False, and changes nothing, if the
        records would not fit: then the group stays what it is.
        """
        now, last = draft.now, draft.group
        stay = [each for each in last.members.values() if each.member_id != leaving]
        classic = downgraded(last.group_id, last.group_epoch, stay, self.topics, now)
        records = [*draft.records, *last.tombstones()]
        records.append(group_record(classic, assignments_of(classic)))
        if sum(record.size for record in records) > self.settings.max_record_bytes:
            return False
        for record in records:
            result.settled(record)
        self.forget(group)
        self.forget(last)
        self.groups.put(classic)
        for member in classic.members.values():
            self._rebalances.renew_session(classic, member, now)
        self._rebalances.prepare(classic, now, result)
        return True

    # Expressions

    def resolve_if_due(
        self, group: ConsumerGroup, now: Instant, caller: Caller, result: Result[R]
    ) -> None:
        """Let a worker resolve the group's expressions: if one of them is not resolved yet, topics
        were created, or the last time is long ago; but not more often than every ten seconds.
        Topics that the caller may not describe do not count (Kafka:
        ``TopicRegexResolver.filterTopicDescribeAuthorizedTopics``).
        """
        wanted = frozenset(group.expression_counts)
        if not wanted or group.is_resolving:
            return
        last_ms = max((each.timestamp_ms for each in group.expressions.values()), default=0)
        passed_ms = now.wall_ms - last_ms
        if 0 <= passed_ms <= SHORTEST_EXPRESSION_INTERVAL_MS:
            return
        if (
            group.expressions_are_stale
            or wanted != group.expressions.keys()
            or passed_ms > self.settings.consumer.regex_refresh_interval_ms
        ):
            group.is_resolving, group.expressions_are_stale = True, False
            result.tasks.append(
                BackgroundTask(
                    partial(regular_expressions.resolve, wanted, self.topics.names()),
                    partial(self._resolved, group.group_id, now.wall_ms, caller),
                )
            )

    def _resolved(
        self, group_id: str, started_ms: int, caller: Caller, outcome: object, now: Instant
    ) -> Result[None]:
        result: Result[None] = Result()
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return result
        group.is_resolving = False
        if isinstance(outcome, MillstreamError):
            group.expressions_are_stale = True
            return result
        draft = self.draft(group, now)
        has_changed = False
        matched = cast("Mapping[str, frozenset[str]]", outcome)
        if caller.describable is not None:
            allowed = frozenset(caller.describable(frozenset().union(*matched.values())))
            matched = {expression: topics & allowed for expression, topics in matched.items()}
        for expression, topics in matched.items():
            if expression not in group.expression_counts:
                continue
            known = group.expressions.get(expression)
            has_changed = has_changed or known is None or known.topics != topics
            draft.add(expression_record(group_id, expression, topics, started_ms))
        if draft.records:
            draft.refresh(bump=has_changed)
            self.commit(draft, result)
        return result
