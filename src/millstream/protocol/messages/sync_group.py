"""SyncGroup: API key 14, versions 0 to 5."""

from __future__ import annotations

from millstream.protocol.fields import array, bytes_, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class SyncGroupRequestAssignment(Struct):
    """One of ``SyncGroupRequest.assignments``."""

    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    """Request of SyncGroup."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+", default=None)
    protocol_type: str | None = string("5+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="0+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    """Response of SyncGroup."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="0+", default=None, ignorable=True)
    assignment: bytes = bytes_()
