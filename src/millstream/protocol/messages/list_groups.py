"""ListGroups: API key 16, versions 0 to 5."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    """Request of ListGroups."""

    states_filter: list[str] = array(string(), "4+", factory=list)
    types_filter: list[str] = array(string(), "5+", factory=list)


class ListedGroup(Struct):
    """One of ``ListGroupsResponse.groups``."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+", default="", ignorable=True)
    group_type: str = string("5+", default="", ignorable=True)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    """Response of ListGroups."""

    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
