"""ExpireDelegationToken: API key 40, versions 1 to 2."""

from __future__ import annotations

from millstream.protocol.fields import bytes_, int16, int32, int64
from millstream.protocol.message import Request, Response


class ExpireDelegationTokenRequest(Request, key=40, versions="1-2", flexible="2+"):
    """Request of ExpireDelegationToken."""

    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Response, key=40, versions="1-2", flexible="2+"):
    """Response of ExpireDelegationToken."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)
