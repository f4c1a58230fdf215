"""UnregisterBroker: API key 64, version 0."""

from __future__ import annotations

from millstream.protocol.fields import int16, int32, string
from millstream.protocol.message import Request, Response


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    """Request of UnregisterBroker."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    """Response of UnregisterBroker."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
