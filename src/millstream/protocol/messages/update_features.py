"""UpdateFeatures: API key 57, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class FeatureUpdateKey(Struct):
    """One of ``UpdateFeaturesRequest.feature_updates``."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = bool_("0", default=False)
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    """Request of UpdateFeatures."""

    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = bool_("1+", default=False)


class UpdatableFeatureResult(Struct):
    """One of ``UpdateFeaturesResponse.results``."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    """Response of UpdateFeatures."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(
        UpdatableFeatureResult, "0-1", factory=list, ignorable=True
    )
