"""CreateAcls: API key 30, versions 1 to 3."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AclCreation(Struct):
    """One of ``CreateAclsRequest.creations``."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    """Request of CreateAcls."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """One of ``CreateAclsResponse.results``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    """Response of CreateAcls."""

    throttle_time_ms: int = int32(default=0)
    results: list[AclCreationResult] = array(AclCreationResult)
