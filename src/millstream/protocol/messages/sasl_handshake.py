"""SaslHandshake: API key 17, versions 0 to 1."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, string
from millstream.protocol.message import Request, Response


class SaslHandshakeRequest(Request, key=17, versions="0-1", flexible="none"):
    """Request of SaslHandshake."""

    mechanism: str = string()


class SaslHandshakeResponse(Response, key=17, versions="0-1", flexible="none"):
    """Response of SaslHandshake."""

    error_code: int = int16()
    mechanisms: list[str] = array(string())
