"""DeleteAcls: API key 31, versions 1 to 3."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DeleteAclsFilter(Struct):
    """One of ``DeleteAclsRequest.filters``."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    """Request of DeleteAcls."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """One of ``DeleteAclsFilterResult.matching_acls``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """One of ``DeleteAclsResponse.filter_results``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    """Response of DeleteAcls."""

    throttle_time_ms: int = int32(default=0)
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
