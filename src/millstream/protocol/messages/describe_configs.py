"""DescribeConfigs: API key 32, versions 1 to 4."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeConfigsResource(Struct):
    """One of ``DescribeConfigsRequest.resources``."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string(), nullable="0+")


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    """Request of DescribeConfigs."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = bool_(default=False)
    include_documentation: bool = bool_("3+", default=False)


class DescribeConfigsSynonym(Struct):
    """One of ``DescribeConfigsResourceResult.synonyms``."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """One of ``DescribeConfigsResult.configs``."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = bool_()
    config_source: int = int8(default=-1)
    is_sensitive: bool = bool_()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+", default=0, ignorable=True)
    documentation: str | None = string("3+", nullable="0+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    """One of ``DescribeConfigsResponse.results``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    """Response of DescribeConfigs."""

    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
