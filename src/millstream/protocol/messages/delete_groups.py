"""DeleteGroups: API key 42, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    """Request of DeleteGroups."""

    groups_names: list[str] = array(string())


class DeletableGroupResult(Struct):
    """One of ``DeleteGroupsResponse.results``."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    """Response of DeleteGroups."""

    throttle_time_ms: int = int32(default=0)
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
