"""DescribeUserScramCredentials (key 50), version 0 (KIP-554).

Which mechanisms users have credentials for, and with how many iterations: of the users named, or of
all who have any. Answered from what this broker knows (Kafka: ``ScramImage.describe``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from millstream.handlers.request import RequestContext
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.entity_keys import decode_name, name_key
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from millstream.runtime.services import Services
from millstream.security.sasl.scram_credential import SCRAM_MECHANISMS, parse_credential

_TWICE: Final = "Cannot describe SCRAM credentials for the same user twice in a single request: "
_UNKNOWN: Final = "Attempt to describe a user credential that does not exist: "


def handle(
    services: Services, context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the credentials."""
    entities = services.metadata.entities.all(EntityKind.USER)
    if request.users:
        counts = Counter(each.name for each in request.users)
    else:
        named = (decode_name(key) for key, value in entities.items() if _infos(value))
        counts = Counter(name for name in named if name is not None)
    return DescribeUserScramCredentialsResponse(
        error_code=0,
        error_message="",
        results=[_result(name, count, entities) for name, count in counts.items()],
    )


def failed(
    context: RequestContext, request: DescribeUserScramCredentialsRequest, error: KafkaError
) -> DescribeUserScramCredentialsResponse:
    """Refuse the request, and with a nameless result each user that it names."""
    result = DescribeUserScramCredentialsResult(
        user="", error_code=error.error.code, error_message=error.message, credential_infos=[]
    )
    return DescribeUserScramCredentialsResponse(
        error_code=error.error.code,
        error_message=error.message,
        results=[result] * len(request.users or ()),
    )


def _result(
    name: str, count: int, entities: Mapping[str, EntityValue]
) -> DescribeUserScramCredentialsResult:
    if count > 1:
        return _error(name, ErrorCode.DUPLICATE_RESOURCE, _TWICE)
    infos = _infos(entities.get(name_key(name), {}))
    if not infos:
        return _error(name, ErrorCode.RESOURCE_NOT_FOUND, _UNKNOWN)
    return DescribeUserScramCredentialsResult(
        user=name, error_code=0, error_message="", credential_infos=infos
    )


def _error(name: str, code: ErrorCode, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code.code, error_message=text + name, credential_infos=[]
    )


def _infos(value: EntityValue) -> list[CredentialInfo]:
    """Return the mechanisms of a user; a credential that cannot be read is none."""
    found = []
    for name, mechanism in SCRAM_MECHANISMS.items():
        if name in value:
            try:
                iterations = parse_credential(value[name]).iterations
            except ValueError:
                continue
            found.append(CredentialInfo(mechanism=mechanism.value, iterations=iterations))
    return found
