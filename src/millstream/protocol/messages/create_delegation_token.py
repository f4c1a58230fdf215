"""CreateDelegationToken: API key 38, versions 1 to 3."""

from __future__ import annotations

from millstream.protocol.fields import array, bytes_, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class CreatableRenewers(Struct):
    """One of ``CreateDelegationTokenRequest.renewers``."""

    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request, key=38, versions="1-3", flexible="2+"):
    """Request of CreateDelegationToken."""

    owner_principal_type: str | None = string("3+", nullable="3+", default="")
    owner_principal_name: str | None = string("3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, key=38, versions="1-3", flexible="2+"):
    """Response of CreateDelegationToken."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="", ignorable=True)
    token_requester_principal_name: str = string("3+", default="", ignorable=True)
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32(default=0)
