"""AlterConfigs: API key 33, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AlterableConfig(Struct):
    """One of ``AlterConfigsResource.configs``."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """One of ``AlterConfigsRequest.resources``."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    """Request of AlterConfigs."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = bool_()


class AlterConfigsResourceResponse(Struct):
    """One of ``AlterConfigsResponse.responses``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    """Response of AlterConfigs."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
