"""JoinGroup: API key 11, versions 0 to 9."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, bytes_, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class JoinGroupRequestProtocol(Struct):
    """One of ``JoinGroupRequest.protocols``."""

    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    """Request of JoinGroup."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """One of ``JoinGroupResponse.members``."""

    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+", default=None, ignorable=True)
    metadata: bytes = bytes_()


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """Response of JoinGroup."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = bool_("9+", default=False)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
