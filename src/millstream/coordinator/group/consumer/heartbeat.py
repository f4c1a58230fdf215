"""ConsumerGroupHeartbeat: a member joins, says what it has, is told what it may have, or leaves.

Each heartbeat does three steps: the member and its subscription are brought up to date, which bumps
the group epoch if the assignment depends on it; a new target assignment is made if the group epoch
is newer than the one there is; the member is brought one step towards its target. Kafka:
``GroupMetadataManager.consumerGroupHeartbeat``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.consumer import regular_expressions
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.draft import Draft
from millstream.coordinator.group.consumer.member import (
    NO_EPOCHS,
    ConsumerMember,
    contains,
    partitions_of,
)
from millstream.coordinator.group.consumer.membership import Membership
from millstream.coordinator.group.consumer.migration import refuse_upgrade, upgrade
from millstream.coordinator.group.consumer.reconciliation import Owned
from millstream.coordinator.group.consumer.records import current_record
from millstream.coordinator.group.join_group import Caller
from millstream.coordinator.group.modern.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
)
from millstream.coordinator.group.rebalance import Rebalances
from millstream.coordinator.group.records import group_tombstone
from millstream.coordinator.group.responses import join_refused, sync_refused
from millstream.coordinator.result import Instant, Result
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

FIRST_VERSION_WITH_MEMBER_IDS: Final = 1
"""From this version on a member makes its id itself (KIP-1082)."""

_Response = ConsumerGroupHeartbeatResponse


@dataclass(frozen=True, slots=True)
class _Beat:
    """One heartbeat while it is processed."""

    request: ConsumerGroupHeartbeatRequest
    caller: Caller
    now: Instant
    result: Result[_Response]

    @property
    def is_joining(self) -> bool:
        return self.request.member_epoch == JOINING_EPOCH

    @property
    def is_full(self) -> bool:
        """True if the request has everything, as after an error: the answer has the assignment."""
        request = self.request
        has_subscription = (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        return (
            request.rebalance_timeout_ms != -1
            and has_subscription
            and request.topic_partitions is not None
        )

    @property
    def owned(self) -> Owned | None:
        topics = self.request.topic_partitions
        return None if topics is None else [(each.topic_id, each.partitions) for each in topics]


class ConsumerHeartbeats:
    """Serves the heartbeats of one shard."""

    def __init__(self, membership: Membership, rebalances: Rebalances) -> None:
        self._membership = membership
        self._rebalances = rebalances

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        new_id: str,
        now: Instant,
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Answer one heartbeat; ``new_id`` becomes the id of a member that has none.

        Raises KafkaError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, INVALID_REGULAR_EXPRESSION,
        GROUP_ID_NOT_FOUND, GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID.
        """
        self._validate(request, caller.version)
        beat = _Beat(request, caller, now, Result())
        if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
            return self._leave(beat)
        member_id = request.member_id or new_id
        draft = self._find_group(beat)
        self._membership.check_room(draft.group, member_id)
        member = self._find_member(beat, draft, member_id)
        updated = _updated(member, request, caller)
        if updated.regex != member.regex:
            _check_expression(draft.group, updated.regex)
        has_changed = self._membership.update(draft, member, updated)
        after = self._membership.assign(
            draft, member_id, beat.owned, subscription_changed=has_changed
        )
        return self._finish(beat, draft, member, after)

    def _finish(
        self, beat: _Beat, draft: Draft, before: ConsumerMember, after: ConsumerMember
    ) -> Result[_Response]:
        membership, request, now = self._membership, beat.request, beat.now
        group_id = request.group_id
        classic = membership.groups.get(group_id)
        membership.commit(draft, beat.result)
        if isinstance(classic, ClassicGroup):
            self._take_over(classic, draft.group, beat)
        membership.renew_session(group_id, after, now)
        membership.watch_revocation(group_id, after, now, before=before)
        for timer_owner in {before.member_id} - {after.member_id}:
            membership.forget_members(group_id, [timer_owner])
        membership.resolve_if_due(draft.group, now, beat.caller, beat.result)
        response = _Response(
            error_code=ErrorCode.NONE.code,
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=membership.settings.consumer.times_of(
                group_id
            ).heartbeat_interval_ms,
        )
        has_changed = partitions_of(before.assigned) != partitions_of(after.assigned)
        if beat.is_joining or beat.is_full or has_changed:
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                    for topic_id, partitions in after.assigned.items()
                ]
            )
        beat.result.response = response
        return beat.result

    # The request

    def _validate(self, request: ConsumerGroupHeartbeatRequest, version: int) -> None:
        epoch = request.member_epoch
        if not request.group_id.strip():
            raise _invalid("GroupId can't be empty.")
        if request.instance_id is not None and not request.instance_id.strip():
            raise _invalid("InstanceId can't be empty.")
        if request.rack_id is not None and not request.rack_id.strip():
            raise _invalid("RackId can't be empty.")
        needs_id = version >= FIRST_VERSION_WITH_MEMBER_IDS or epoch != JOINING_EPOCH
        if needs_id and not request.member_id.strip():
            raise _invalid("MemberId can't be empty.")
        if epoch == JOINING_EPOCH:
            _validate_join(request)
        elif epoch == STATIC_LEAVING_EPOCH:
            if request.instance_id is None:
                raise _invalid("InstanceId can't be null.")
        elif epoch < LEAVING_EPOCH:
            raise _invalid("MemberEpoch is invalid.")
        known = self._membership.assignors
        if request.server_assignor is not None and request.server_assignor not in known:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {request.server_assignor} is not supported. "
                f"Supported assignors: {', '.join(known)}.",
            )

    # The group

    def _find_group(self, beat: _Beat) -> Draft:
        """Return a draft of the consumer group: the one there is, a new one, or one made of a
        classic group.
        """
        group_id, now = beat.request.group_id, beat.now
        membership = self._membership
        group = membership.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return membership.draft(group, now)
        if not beat.is_joining:
            if isinstance(group, ClassicGroup):
                # Its session ended, and with it the consumer group. Kafka answers
                # GROUP_ID_NOT_FOUND, at which clients give up; this one makes them join again.
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, _OTHER_KIND.format(group_id))
            text = "Consumer group {} not found." if group is None else _OTHER_KIND
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text.format(group_id))
        if group is None:
            membership.groups.check_room()
            return membership.new_draft(group_id, now)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, _OTHER_KIND.format(group_id))
        draft = membership.new_draft(group_id, now)
        if group.is_empty:
            # Whoever was given an id there, and has not joined with it yet, joins this group.
            draft.add_foreign(group_tombstone(group_id))
            return draft
        consumer = membership.settings.consumer
        refuse_upgrade(
            group,
            allowed=consumer.migration_policy.allows_upgrade,
            max_size=consumer.max_size,
            topics=membership.topics,
        )
        upgrade(group, draft, membership.topics)
        return draft

    def _take_over(self, classic: ClassicGroup, group: ConsumerGroup, beat: _Beat) -> None:
        """End the classic group that this one was made of: whoever waits in it has to rejoin."""
        error = ErrorCode.REBALANCE_IN_PROGRESS
        for member in classic.members.values():
            if member.awaiting_join is not None:
                beat.result.answer(member.awaiting_join, join_refused(error, member.member_id))
            if member.awaiting_sync is not None:
                beat.result.answer(member.awaiting_sync, sync_refused(error))
        self._rebalances.forget(classic)
        for converted in group.members.values():
            self._membership.renew_session(group.group_id, converted, beat.now)

    # The member

    def _find_member(self, beat: _Beat, draft: Draft, member_id: str) -> ConsumerMember:
        request = beat.request
        if beat.is_joining:
            return self._membership.joining_member(
                draft, member_id, request.instance_id, is_classic=False
            )
        if request.instance_id is None:
            member = draft.group.require_member(member_id)
        else:
            member = self._membership.static_member(draft.group, member_id, request.instance_id)
        _check_epoch(member, request.member_epoch, beat.owned)
        return member

    # Leaving

    def _leave(self, beat: _Beat) -> Result[_Response]:
        request, membership = beat.request, self._membership
        group = membership.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            text = "Consumer group {} not found." if group is None else _OTHER_KIND
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text.format(request.group_id))
        if request.instance_id is None:
            member = group.require_member(request.member_id)
        else:
            member = membership.static_member(group, request.member_id, request.instance_id)
        if request.member_epoch == STATIC_LEAVING_EPOCH:
            # It keeps its place, and what it had, until its session expires.
            draft = membership.draft(group, beat.now)
            away = replace(member, member_epoch=STATIC_LEAVING_EPOCH, pending_revocation=NO_EPOCHS)
            draft.add(current_record(group.group_id, away))
            membership.commit(draft, beat.result)
            membership.watch_revocation(group.group_id, away, beat.now)
        else:
            membership.fence(group, (member,), beat.now, beat.result)
        beat.result.response = _Response(
            error_code=ErrorCode.NONE.code,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return beat.result


_OTHER_KIND: Final = "Group {} is not a consumer group."


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> ConsumerMember:
    """Return the member with what the request says; what is null in it has not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=_newer(request.instance_id, member.instance_id),
        rack_id=_newer(request.rack_id, member.rack_id),
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=_newer(request.server_assignor, member.server_assignor),
        subscribed_topic_names=(
            member.subscribed_topic_names if names is None else frozenset(names)
        ),
        regex=member.regex if regex is None else regex,
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=None,
    )


def _newer(asked: str | None, present: str | None) -> str | None:
    return present if asked is None else asked


def _check_epoch(member: ConsumerMember, epoch: int, owned: Owned | None) -> None:
    """Raise FENCED_MEMBER_EPOCH for another epoch than the member's.

    The previous one is accepted if the member owns nothing that it may not have: the answer with
    its present epoch was lost.
    """
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        relation = "greater"
    elif epoch == member.previous_member_epoch and _is_within(owned, member):
        return
    else:
        relation = "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _is_within(owned: Owned | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in member.assigned and _all_in(member, topic_id, partitions)
        for topic_id, partitions in owned
    )


def _all_in(member: ConsumerMember, topic_id: object, partitions: Iterable[int]) -> bool:
    return all(contains(member.assigned, topic_id, each) for each in partitions)  # type: ignore[arg-type]


def _check_expression(group: ConsumerGroup, expression: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION for a new expression that cannot be used."""
    if not expression or expression in group.expression_counts:
        return
    if len(group.expression_counts) >= regular_expressions.MAX_EXPRESSIONS:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The group has {regular_expressions.MAX_EXPRESSIONS} regular expressions, "
            "which is the limit.",
        )
    regular_expressions.check(expression)


def _validate_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining."
        )


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
