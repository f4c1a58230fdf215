"""ListConfigResources: API key 74, versions 0 to 1."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    """Request of ListConfigResources."""

    resource_types: list[int] = array(int8(), "1+", factory=list)


class ConfigResource(Struct):
    """One of ``ListConfigResourcesResponse.config_resources``."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    """Response of ListConfigResources."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
