"""CreateDelegationToken (key 38), versions 1 to 3 (KIP-48).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
2        flexible
3        a token for another owner (KIP-373)
=======  ====================================================================================

Any broker passes the request on to the controller. Refused to clients that have not authenticated
or that did so with a token (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED), and on a broker without
`delegation.token.secret.key` (DELEGATION_TOKEN_AUTH_DISABLED). A token for somebody else needs
CreateTokens on that user. Nobody has more than 1,000 tokens, nor asks for more (POLICY_VIOLATION).
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from millstream.handlers.delegation_token_requests import may, require_authenticated
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.entity_keys import name_key
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.principal import KafkaPrincipal
from millstream.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.runtime.services import Services
from millstream.security.delegation_tokens import NO_TIME_MS, check_room, new_token, write_token


async def handle(
    services: Services, context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token."""
    requester = require_authenticated(context)
    owner = _owner(context, request)
    if owner != requester and not may(
        services, context, AclOperation.CREATE_TOKENS, AclResource.USER, str(owner)
    ):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    if not owner.type:  # nobody can be that
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if is_elsewhere(services):
        return await forward(services, context, request, CreateDelegationTokenResponse)
    tokens = services.delegation_tokens
    token_id = str(UUID(bytes=services.random_bytes(16), version=4))
    token_hmac = tokens.hmac(token_id)
    token = new_token(
        token_id,
        owner=owner,
        requester=requester,
        renewers=[
            KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers
        ],
        max_lifetime_ms=request.max_lifetime_ms,
        times=tokens.times,
        now_ms=services.clock.now_ms(),
    )

    def decide(present: Mapping[str, EntityValue]) -> EntityChanges:
        check_room(token, present.values())
        return {name_key(token.token_id): write_token(token)}

    await services.controller.change_entities(EntityKind.DELEGATION_TOKEN, decide)
    return CreateDelegationTokenResponse(
        error_code=0,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac,
    )


def failed(
    context: RequestContext, request: CreateDelegationTokenRequest, error: KafkaError
) -> CreateDelegationTokenResponse:
    """Refuse with the error and no token."""
    owner, requester = _owner(context, request), context.connection.principal
    return CreateDelegationTokenResponse(
        error_code=error.error.code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=NO_TIME_MS,
        expiry_timestamp_ms=NO_TIME_MS,
        max_timestamp_ms=NO_TIME_MS,
        token_id="",
        hmac=b"",
    )


def _owner(context: RequestContext, request: CreateDelegationTokenRequest) -> KafkaPrincipal:
    requester = context.connection.principal
    if not request.owner_principal_name:
        return KafkaPrincipal(requester.type, requester.name)
    return KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
