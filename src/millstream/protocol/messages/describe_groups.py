"""DescribeGroups: API key 15, versions 0 to 6."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, bytes_, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    """Request of DescribeGroups."""

    groups: list[str] = array(string())
    include_authorized_operations: bool = bool_("3+", default=False)


class DescribedGroupMember(Struct):
    """One of ``DescribedGroup.members``."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    """One of ``DescribeGroupsResponse.groups``."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    """Response of DescribeGroups."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
