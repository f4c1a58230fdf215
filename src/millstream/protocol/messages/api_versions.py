"""ApiVersions: API key 18, versions 0 to 4."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    """Request of ApiVersions."""

    client_software_name: str = string("3+", default="", ignorable=True)
    client_software_version: str = string("3+", default="", ignorable=True)


class ApiVersion(Struct):
    """One of ``ApiVersionsResponse.api_keys``."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """One of ``ApiVersionsResponse.supported_features``."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """One of ``ApiVersionsResponse.finalized_features``."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    """Response of ApiVersions."""

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, "3+", tag=0, factory=list, ignorable=True
    )
    finalized_features_epoch: int = int64("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, "3+", tag=2, factory=list, ignorable=True
    )
    zk_migration_ready: bool = bool_("3+", tag=3, default=False, ignorable=True)
