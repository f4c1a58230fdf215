"""DescribeAcls: API key 29, versions 1 to 3."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    """Request of DescribeAcls."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """One of ``DescribeAclsResource.acls``."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """One of ``DescribeAclsResponse.resources``."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    """Response of DescribeAcls."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
