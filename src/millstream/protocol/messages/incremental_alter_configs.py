"""IncrementalAlterConfigs: API key 44, versions 0 to 1."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AlterableConfig(Struct):
    """One of ``AlterConfigsResource.configs``."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """One of ``IncrementalAlterConfigsRequest.resources``."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    """Request of IncrementalAlterConfigs."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = bool_()


class AlterConfigsResourceResponse(Struct):
    """One of ``IncrementalAlterConfigsResponse.responses``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    """Response of IncrementalAlterConfigs."""

    throttle_time_ms: int = int32(default=0)
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
