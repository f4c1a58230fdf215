"""ExpireDelegationToken (key 40), versions 1 and 2 (KIP-48); version 2 is flexible.

A token ends, now where the period is below 0, else after it. Its owner and its renewers may do
that, who name it by its HMAC. Any broker passes the request on to the controller. Refused to
clients that have not authenticated or that did so with a token
(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.handlers.delegation_token_requests import (
    require_authenticated,
    time_of_refusal_ms,
)
from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.errors import KafkaError
from millstream.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from millstream.runtime.services import Services
from millstream.security.delegation_tokens import ended, read_token, write_token


async def handle(
    services: Services, context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """End a token."""
    requester = require_authenticated(context)
    wanted = bytes(request.hmac)
    if is_elsewhere(services):
        return await forward(services, context, request, ExpireDelegationTokenResponse)
    tokens = services.delegation_tokens
    ids = tokens.ids
    expires_ms: list[int] = []

    def decide(present: Mapping[str, EntityValue]) -> EntityChanges:
        key = ids.find(wanted, present)
        now_ms = services.clock.now_ms()
        token = ended(
            read_token(present[key]),
            requester,
            period_ms=request.expiry_time_period_ms,
            now_ms=now_ms,
        )
        expires_ms.append(now_ms if token is None else token.expires_ms)
        return {key: None if token is None else write_token(token)}

    await services.controller.change_entities(EntityKind.DELEGATION_TOKEN, decide)
    return ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expires_ms[-1])


def failed(
    context: RequestContext, request: ExpireDelegationTokenRequest, error: KafkaError
) -> ExpireDelegationTokenResponse:
    """Refuse with the error."""
    return ExpireDelegationTokenResponse(
        error_code=error.error.code, expiry_timestamp_ms=time_of_refusal_ms(error)
    )
