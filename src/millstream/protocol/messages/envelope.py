"""Envelope: API key 10008, version 0. Between brokers of Millstream only.

A broker hands a client's request on to the controller, and with it who the client is (Kafka:
``EnvelopeRequest``, KIP-590). ``body`` is the request, or the response, without its header.
"""

from __future__ import annotations

from millstream.protocol.fields import bool_, bytes_, int16, string
from millstream.protocol.message import Request, Response


class EnvelopeRequest(Request, key=10008, versions="0", flexible="0+"):
    """Request of Envelope."""

    api_key: int = int16()
    api_version: int = int16()
    client_id: str | None = string(nullable="0+")
    listener: str = string()
    client_host: str = string()
    principal_type: str = string()
    principal_name: str = string()
    token_authenticated: bool = bool_()
    body: bytes = bytes_()


class EnvelopeResponse(Response, key=10008, versions="0", flexible="0+"):
    """Response of Envelope; without an error ``body`` is the answer to the client."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable="0+", default=None)
    body: bytes = bytes_(default=b"")
