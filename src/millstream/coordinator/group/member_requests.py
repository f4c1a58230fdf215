"""The requests of a member after it has joined: SyncGroup, Heartbeat, LeaveGroup.

Kafka: ``GroupMetadataManager.classicGroupSync``, ``classicGroupHeartbeat``, ``classicGroupLeave``.
"""

from __future__ import annotations

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.member import NO_ASSIGNMENT, Member
from millstream.coordinator.group.rebalance import Rebalances
from millstream.coordinator.group.records import group_record
from millstream.coordinator.group.responses import NO_MEMBER_ID, assigned, sync_refused
from millstream.coordinator.group.settings import GroupSettings
from millstream.coordinator.group.states import GroupState
from millstream.coordinator.result import Instant, Result
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class MemberRequests:
    """Serves the members of one shard's groups."""

    def __init__(self, settings: GroupSettings, groups: Groups, rebalances: Rebalances) -> None:
        self._settings = settings
        self._groups = groups
        self._rebalances = rebalances

    # SyncGroup

    def sync(
        self, request: SyncGroupRequest, reply: Deferred[SyncGroupResponse], now: Instant
    ) -> Result[SyncGroupResponse]:
        """Return a member's assignment: at once in a stable group, else when the leader has sent
        it.
        """
        result: Result[SyncGroupResponse] = Result()
        group = self._groups.classic_or_none(request.group_id)
        if group is None or group.state is GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._validate_sync(group, request)
        if group.state is GroupState.PREPARING_REBALANCE:
            result.answer(reply, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            self._rebalances.note_sync(group, member.member_id)
            result.answer(reply, assigned(group, member))
        else:
            if member.awaiting_sync is not None:
                result.answer(member.awaiting_sync, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS))
            member.awaiting_sync = reply
            self._rebalances.note_sync(group, member.member_id)
            if group.is_leader(member.member_id):
                self._take_assignment(group, request, now, result)
        return result

    def _validate_sync(self, group: ClassicGroup, request: SyncGroupRequest) -> Member:
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return member

    def _take_assignment(
        self,
        group: ClassicGroup,
        request: SyncGroupRequest,
        now: Instant,
        result: Result[SyncGroupResponse],
    ) -> None:
        assigned_parts = {part.member_id: bytes(part.assignment) for part in request.assignments}
        assignments = {m: assigned_parts.get(m, NO_ASSIGNMENT) for m in group.members}
        record = group_record(group, assignments)
        if record.size > self._settings.max_record_bytes:
            self._rebalances.abandon_sync(group, ErrorCode.UNKNOWN_SERVER_ERROR, now, result)
            self._rebalances.prepare_or_complete(group, now, result)
        else:
            self._rebalances.finish_sync(group, assignments, now, result)
            result.settled(record)

    # Heartbeat

    def heartbeat(self, request: HeartbeatRequest, now: Instant) -> Result[HeartbeatResponse]:
        """Renew a member's session; REBALANCE_IN_PROGRESS tells it to join again.

        Between its JoinGroup and SyncGroup a member may send heartbeats as well.
        """
        group = self._groups.classic_or_none(request.group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member = group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation_id:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        self._rebalances.renew_session(group, member, now)
        error = ErrorCode.NONE
        if group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return Result(HeartbeatResponse(error_code=error.code))

    # LeaveGroup

    def leave(self, request: LeaveGroupRequest, now: Instant) -> Result[LeaveGroupResponse]:
        """Remove members at once; a rebalance follows for the remaining ones.

        A member with an instance id and no member id is removed by an administrator.
        """
        group = self._groups.classic_or_none(request.group_id)
        result: Result[LeaveGroupResponse] = Result()
        if group is None:
            # Kafka returns an error for each member, not for the group.
            errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(request.members)
        else:
            errors = [self._leave_one(group, member, result) for member in request.members]
            if ErrorCode.NONE in errors:
                self._after_leave(group, now, result)
        result.response = LeaveGroupResponse(
            error_code=ErrorCode.NONE.code,
            members=[
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=error.code,
                )
                for member, error in zip(request.members, errors, strict=True)
            ],
        )
        return result

    def _leave_one(
        self, group: ClassicGroup, identity: MemberIdentity, result: Result[LeaveGroupResponse]
    ) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if member_id == NO_MEMBER_ID:
            member_id = group.static_members.get(instance_id or "", NO_MEMBER_ID)
            if member_id == NO_MEMBER_ID:
                return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id in group.pending_join:
            self._rebalances.end_session(group, member_id)
            group.remove(member_id)
            return ErrorCode.NONE
        try:
            member = group.validate_member(member_id, instance_id)
        except KafkaError as error:
            return error.error
        self._rebalances.drop_member(group, member, result)
        return ErrorCode.NONE

    def _after_leave(
        self, group: ClassicGroup, now: Instant, result: Result[LeaveGroupResponse]
    ) -> None:
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self._rebalances.prepare(group, now, result)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.complete_if_all_joined(group, now, result)


def _differs(asked: str | None, current: str | None) -> bool:
    return asked is not None and current is not None and asked != current
