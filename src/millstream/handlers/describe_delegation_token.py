"""DescribeDelegationToken (key 41), versions 1 to 3 (KIP-48).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
2        flexible
3        who asked for a token (KIP-373)
=======  ====================================================================================

A client sees the tokens that it owns, may renew or has asked for, and others where it may Describe
the token or DescribeTokens of the owner; with a list of owners only those that one of them owns,
may renew or has asked for.
Refused to clients that have not authenticated or that did so with a token
(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED). Answered from what this broker knows. Kafka:
``KafkaApis.handleDescribeTokensRequest``, ``DelegationTokenManager.filterToken``.
"""

from __future__ import annotations

from millstream.handlers.delegation_token_requests import may, require_authenticated
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import KafkaError
from millstream.model.principal import KafkaPrincipal
from millstream.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from millstream.runtime.services import Services
from millstream.security.delegation_tokens import DelegationToken


def handle(
    services: Services, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Describe the tokens that the client may see."""
    requester = require_authenticated(context)
    tokens = services.delegation_tokens
    tokens.check_enabled()
    owners = None
    if request.owners is not None:
        owners = [
            KafkaPrincipal(each.principal_type, each.principal_name) for each in request.owners
        ]

    def is_visible(token: DelegationToken) -> bool:
        if owners is not None and not any(token.may_be_seen_by(owner) for owner in owners):
            return False
        return (
            token.may_be_seen_by(requester)
            or may(
                services,
                context,
                AclOperation.DESCRIBE,
                AclResource.DELEGATION_TOKEN,
                token.token_id,
            )
            or may(
                services,
                context,
                AclOperation.DESCRIBE_TOKENS,
                AclResource.USER,
                str(token.owner),
            )
        )

    return DescribeDelegationTokenResponse(
        error_code=0,
        tokens=[
            _described(each, tokens.hmac(each.token_id))
            for each in tokens.all()
            if is_visible(each)
        ],
    )


def failed(
    context: RequestContext, request: DescribeDelegationTokenRequest, error: KafkaError
) -> DescribeDelegationTokenResponse:
    """Refuse with the error."""
    return DescribeDelegationTokenResponse(error_code=error.error.code, tokens=[])


def _described(token: DelegationToken, token_hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=token_hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
