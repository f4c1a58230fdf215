"""LeaveGroup: API key 13, versions 0 to 5."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class MemberIdentity(Struct):
    """One of ``LeaveGroupRequest.members``."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+", default=None)
    reason: str | None = string("5+", nullable="0+", default=None, ignorable=True)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    """Request of LeaveGroup."""

    group_id: str = string()
    member_id: str = string("0-2", default="")
    members: list[MemberIdentity] = array(MemberIdentity, "3+", factory=list)


class MemberResponse(Struct):
    """One of ``LeaveGroupResponse.members``."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    """Response of LeaveGroup."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+", factory=list)
