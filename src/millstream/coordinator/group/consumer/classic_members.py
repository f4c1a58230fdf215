"""The requests of classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

A member that speaks the classic protocol takes part with the subscription in its metadata. Its
generation is its member epoch; it leads nothing, for the broker assigns; REBALANCE_IN_PROGRESS
makes it join again whenever its assignment has to change. Kafka: the methods
``classicGroup…ToConsumerGroup`` of ``GroupMetadataManager``.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.draft import Draft
from millstream.coordinator.group.consumer.member import ClassicMembership, ConsumerMember
from millstream.coordinator.group.consumer.membership import Membership
from millstream.coordinator.group.consumer.migration import (
    encode_assignment,
    metadata_version,
    owned_by_id,
    parse_subscription,
)
from millstream.coordinator.group.join_group import (
    FIRST_VERSION_WITH_MEMBER_ID_REQUIRED,
    Joining,
)
from millstream.coordinator.group.modern.member import MemberState
from millstream.coordinator.group.responses import NO_LEADER, NO_MEMBER_ID, join_refused
from millstream.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from millstream.coordinator.group.timers import Timer
from millstream.coordinator.result import Instant, Result
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError, ProtocolError
from millstream.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.join_group import JoinGroupResponse
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicMembers:
    """Serves the classic members of the consumer groups of one shard."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    # JoinGroup

    def join(self, group: ConsumerGroup, joining: Joining) -> None:
        """Let a member join, or join again; it is answered at once.

        Raises KafkaError: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER_ID,
        FENCED_INSTANCE_ID.
        """
        request, membership = joining.request, self._membership
        is_unknown = request.member_id == NO_MEMBER_ID
        member_id = request.member_id or joining.new_member_id
        membership.check_room(group, member_id)
        subscription = _subscription(group, joining)
        if (
            is_unknown
            and request.group_instance_id is None
            and joining.caller.version >= FIRST_VERSION_WITH_MEMBER_ID_REQUIRED
        ):
            joining.answer(join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        draft = membership.draft(group, joining.now)
        static = group.static_member(request.group_instance_id)
        is_downgrade = static is not None and membership.may_downgrade(
            group, static.member_id, is_replaced=True
        )
        member = self._find_member(draft, joining, member_id)
        updated = _updated(member, joining, subscription)
        has_changed = membership.update(draft, member, updated)
        owned = owned_by_id(subscription.owned_partitions, membership.topics)
        if is_downgrade:
            if not has_changed:
                updated = draft.reconcile(member_id, owned, subscription_changed=False)
            # The rebalance tells one of the members that it leads. Without one, nobody would look
            # for new partitions until a member comes or goes.
            if membership.downgrade(group, draft, joining.result, leaving=None):
                joining.answer(_joined(updated))
                return
        updated = membership.assign(draft, member_id, owned, subscription_changed=has_changed)
        membership.commit(draft, joining.result)
        if static is not None and static.member_id != member_id:
            membership.forget_members(group.group_id, [static.member_id])
        self._await_sync(group.group_id, updated, joining)
        joining.answer(_joined(updated))

    def _find_member(self, draft: Draft, joining: Joining, member_id: str) -> ConsumerMember:
        request, membership = joining.request, self._membership
        instance_id = request.group_instance_id
        if instance_id is not None and request.member_id != NO_MEMBER_ID:
            return membership.static_member(draft.group, member_id, instance_id)
        return membership.joining_member(draft, member_id, instance_id, is_classic=True)

    def _await_sync(self, group_id: str, member: ConsumerMember, joining: Joining) -> None:
        membership, now = self._membership, joining.now
        membership.cancel_timer(Timer.MEMBER_JOIN, group_id, member.member_id)
        membership.cancel_timer(Timer.REVOCATION, group_id, member.member_id)
        membership.renew_session(group_id, member, now)
        deadline_ms = now.monotonic_ms + joining.request.rebalance_timeout_ms
        membership.set_timer(Timer.MEMBER_SYNC, group_id, member.member_id, deadline_ms)

    # SyncGroup

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        reply: Deferred[SyncGroupResponse],
        now: Instant,
    ) -> Result[SyncGroupResponse]:
        """Return what a member has, in the language of the classic protocol."""
        membership = self._membership
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        _check_protocol(member, request.protocol_type, request.protocol_name)
        if (
            group.assignment_epoch > member.member_epoch
            and member.state is not MemberState.UNREVOKED_PARTITIONS
        ):
            self._await_join(group.group_id, member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        membership.cancel_timer(Timer.MEMBER_SYNC, group.group_id, member.member_id)
        membership.renew_session(group.group_id, member, now)
        result: Result[SyncGroupResponse] = Result()
        result.answer(
            reply,
            SyncGroupResponse(
                error_code=ErrorCode.NONE.code,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=encode_assignment(member, membership.topics),
            ),
        )
        return result

    # Heartbeat

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, now: Instant
    ) -> Result[HeartbeatResponse]:
        """Renew a member's session; REBALANCE_IN_PROGRESS tells it to join again: when there is a
        newer assignment, when it has partitions to give back, or when those that it waited for
        are free.
        """
        member = self._classic_member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._membership.renew_session(group.group_id, member, now)
        error = ErrorCode.NONE
        if (
            member.member_epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (
                member.state is MemberState.UNRELEASED_PARTITIONS
                and not group.waits_for_others(member)
            )
        ):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            self._await_join(group.group_id, member, now)
        return Result(HeartbeatResponse(error_code=error.code))

    def _await_join(self, group_id: str, member: ConsumerMember, now: Instant) -> None:
        deadline_ms = now.monotonic_ms + member.rebalance_timeout_ms
        self._membership.start_timer(Timer.MEMBER_JOIN, group_id, member.member_id, deadline_ms)

    # LeaveGroup

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, now: Instant
    ) -> Result[LeaveGroupResponse]:
        """Remove classic members; those of the consumer protocol are unknown here."""
        result: Result[LeaveGroupResponse] = Result()
        gone: dict[str, ConsumerMember] = {}
        answers = []
        for identity in request.members:
            error = ErrorCode.NONE
            member_id = identity.member_id
            try:
                member = self._leaving(group, identity, gone)
                member_id = member.member_id
                gone[member_id] = member
            except KafkaError as refusal:
                error = refusal.error
            answers.append(
                MemberResponse(
                    member_id=member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=error.code,
                )
            )
        if gone:
            self._membership.fence(group, gone.values(), now, result)
        result.response = LeaveGroupResponse(error_code=ErrorCode.NONE.code, members=answers)
        return result

    def _leaving(
        self, group: ConsumerGroup, identity: MemberIdentity, gone: Container[str]
    ) -> ConsumerMember:
        if identity.group_instance_id is None:
            member = group.require_member(identity.member_id)
        else:
            member = self._membership.static_member(
                group, identity.member_id, identity.group_instance_id
            )
        if member.member_id in gone:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return _require_classic(member)

    def _classic_member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ConsumerMember:
        if instance_id is None:
            return _require_classic(group.require_member(member_id))
        member = self._membership.static_member(group, member_id, instance_id)
        if member_id == NO_MEMBER_ID:
            raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        return _require_classic(member)


def _require_classic(member: ConsumerMember) -> ConsumerMember:
    if not member.is_classic:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member.member_id} does not use the classic protocol.",
        )
    return member


def _subscription(group: ConsumerGroup, joining: Joining) -> ConsumerProtocolSubscription:
    """Return the subscription of a member that may join; INCONSISTENT_GROUP_PROTOCOL if its
    protocols are not those of the group, or its metadata cannot be read.
    """
    protocols = joining.protocols
    if not group.supports(joining.request.protocol_type, protocols):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    metadata = next(iter(protocols.values()))
    try:
        metadata_version(metadata)
        return parse_subscription(metadata)
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _updated(
    member: ConsumerMember, joining: Joining, subscription: ConsumerProtocolSubscription
) -> ConsumerMember:
    request = joining.request
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        regex="",
        client_id=joining.caller.client_id,
        client_host=joining.caller.client_host,
        classic=ClassicMembership(request.session_timeout_ms, tuple(joining.protocols.items())),
    )


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    assert member.classic is not None
    return JoinGroupResponse(
        error_code=ErrorCode.NONE.code,
        generation_id=member.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=member.classic.protocol_name,
        leader=NO_LEADER,
        member_id=member.member_id,
        members=[],
    )


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if generation_id != member.member_epoch:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation_id} is not equal to the member epoch "
            f"{member.member_epoch} of member {member.member_id}.",
        )


def _check_protocol(
    member: ConsumerMember, protocol_type: str | None, protocol_name: str | None
) -> None:
    assert member.classic is not None
    is_other_type = protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if is_other_type or protocol_name not in (None, member.classic.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
