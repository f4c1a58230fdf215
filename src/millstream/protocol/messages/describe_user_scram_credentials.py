"""DescribeUserScramCredentials: API key 50, versions 0."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class UserName(Struct):
    """One of ``DescribeUserScramCredentialsRequest.users``."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible="0+"):
    """Request of DescribeUserScramCredentials."""

    users: list[UserName] | None = array(UserName, nullable="0+")


class CredentialInfo(Struct):
    """One of ``DescribeUserScramCredentialsResult.credential_infos``."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Struct):
    """One of ``DescribeUserScramCredentialsResponse.results``."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible="0+"):
    """Response of DescribeUserScramCredentials."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
