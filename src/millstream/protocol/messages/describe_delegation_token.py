"""DescribeDelegationToken: API key 41, versions 1 to 3."""

from __future__ import annotations

from millstream.protocol.fields import array, bytes_, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeDelegationTokenOwner(Struct):
    """One of ``DescribeDelegationTokenRequest.owners``."""

    principal_type: str = string()
    principal_name: str = string()


class DescribeDelegationTokenRequest(Request, key=41, versions="1-3", flexible="2+"):
    """Request of DescribeDelegationToken."""

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="1+"
    )


class DescribedDelegationTokenRenewer(Struct):
    """One of ``DescribedDelegationToken.renewers``."""

    principal_type: str = string()
    principal_name: str = string()


class DescribedDelegationToken(Struct):
    """One of ``DescribeDelegationTokenResponse.tokens``."""

    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+", default="", ignorable=True)
    token_requester_principal_name: str = string("3+", default="", ignorable=True)
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)


class DescribeDelegationTokenResponse(Response, key=41, versions="1-3", flexible="2+"):
    """Response of DescribeDelegationToken."""

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32(default=0)
