"""RenewDelegationToken (key 39), versions 1 and 2 (KIP-48); version 2 is flexible.

A token holds longer, up to its end: `delegation.token.expiry.time.ms` more, or less where the
client wants that. Its owner and its renewers may do that, who name it by its HMAC. Any broker
passes the request on to the controller. Refused to clients that have not authenticated or that did
so with a token (DELEGATION_TOKEN_REQUEST_NOT_ALLOWED).
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
from millstream.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from millstream.runtime.services import Services
from millstream.security.delegation_tokens import read_token, renewed, write_token


async def handle(
    services: Services, context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Let a token hold longer."""
    requester = require_authenticated(context)
    wanted = bytes(request.hmac)
    if is_elsewhere(services):
        return await forward(services, context, request, RenewDelegationTokenResponse)
    tokens = services.delegation_tokens
    ids = tokens.ids
    expires_ms: list[int] = []

    def decide(present: Mapping[str, EntityValue]) -> EntityChanges:
        key = ids.find(wanted, present)
        token = renewed(
            read_token(present[key]),
            requester,
            period_ms=request.renew_period_ms,
            times=tokens.times,
            now_ms=services.clock.now_ms(),
        )
        expires_ms.append(token.expires_ms)
        return {key: write_token(token)}

    await services.controller.change_entities(EntityKind.DELEGATION_TOKEN, decide)
    return RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expires_ms[-1])


def failed(
    context: RequestContext, request: RenewDelegationTokenRequest, error: KafkaError
) -> RenewDelegationTokenResponse:
    """Refuse with the error."""
    return RenewDelegationTokenResponse(
        error_code=error.error.code, expiry_timestamp_ms=time_of_refusal_ms(error)
    )
