"""AlterUserScramCredentials: API key 51, versions 0."""

from __future__ import annotations

from millstream.protocol.fields import array, bytes_, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ScramCredentialDeletion(Struct):
    """One of ``AlterUserScramCredentialsRequest.deletions``."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Struct):
    """One of ``AlterUserScramCredentialsRequest.upsertions``."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytes_()
    salted_password: bytes = bytes_()


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    """Request of AlterUserScramCredentials."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Struct):
    """One of ``AlterUserScramCredentialsResponse.results``."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    """Response of AlterUserScramCredentials."""

    throttle_time_ms: int = int32(default=0)
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
