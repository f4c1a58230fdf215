"""PushTelemetry: API key 72, version 0."""

from __future__ import annotations

from millstream.protocol.fields import bool_, bytes_, int8, int16, int32, uuid
from millstream.protocol.message import Request, Response


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    """Request of PushTelemetry. ``metrics`` is OTLP, in the compression that is named."""

    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = bool_()
    compression_type: int = int8()
    metrics: bytes = bytes_()


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    """Response of PushTelemetry."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
