"""GetTelemetrySubscriptions: API key 71, version 0."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int8, int16, int32, string, uuid
from millstream.protocol.message import Request, Response


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    """Request of GetTelemetrySubscriptions."""

    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    """Response of GetTelemetrySubscriptions."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8())
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = bool_()
    requested_metrics: list[str] = array(string())
