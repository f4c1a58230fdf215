"""RenewDelegationToken: API key 39, versions 1 to 2."""

from __future__ import annotations

from millstream.protocol.fields import bytes_, int16, int32, int64
from millstream.protocol.message import Request, Response


class RenewDelegationTokenRequest(Request, key=39, versions="1-2", flexible="2+"):
    """Request of RenewDelegationToken."""

    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, key=39, versions="1-2", flexible="2+"):
    """Response of RenewDelegationToken."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32(default=0)
