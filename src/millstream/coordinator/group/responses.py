"""Responses to JoinGroup and SyncGroup."""

from __future__ import annotations

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.member import NO_ASSIGNMENT, Member
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from millstream.protocol.messages.sync_group import SyncGroupResponse

NO_MEMBER_ID = ""
NO_LEADER = ""


def join_refused(error: ErrorCode, member_id: str = NO_MEMBER_ID) -> JoinGroupResponse:
    """Return the error response to a JoinGroup."""
    return JoinGroupResponse(
        error_code=error.code,
        generation_id=-1,
        protocol_name=None,
        leader=NO_LEADER,
        member_id=member_id,
        members=[],
    )


def joined(
    group: ClassicGroup,
    member_id: str,
    *,
    leader_id: str | None = None,
    skip_assignment: bool = False,
    with_members: bool = True,
) -> JoinGroupResponse:
    """Return the JoinGroup response to a member of the present generation.

    The leader also gets all members' metadata, unless ``with_members`` is False. ``leader_id``
    overrides the group's leader.
    """
    members: list[JoinGroupResponseMember] = []
    if with_members and group.is_leader(member_id):
        name = group.protocol_name
        assert name is not None, "a generation with members has a protocol"
        members = [
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.protocols[name],
            )
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE.code,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id or group.leader_id or NO_LEADER,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_refused(error: ErrorCode) -> SyncGroupResponse:
    """Return the error response to a SyncGroup."""
    return SyncGroupResponse(error_code=error.code, assignment=NO_ASSIGNMENT)


def assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """Return the SyncGroup response with a member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE.code,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )
