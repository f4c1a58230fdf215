"""SaslAuthenticate: API key 36, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import bytes_, int16, int64, string
from millstream.protocol.message import Request, Response


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    """Request of SaslAuthenticate."""

    auth_bytes: bytes = bytes_()


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    """Response of SaslAuthenticate."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = bytes_()
    session_lifetime_ms: int = int64("1+", default=0, ignorable=True)
