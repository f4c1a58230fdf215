"""UnregisterBroker (key 64), version 0 (KIP-746).

A broker that is alive is not unregistered: stop it first (INVALID_REQUEST). What the cluster keeps
of one that is gone is taken away: its dynamic settings, and its part in deletions that still wait
for it. Replicas that it should keep are left for a reassignment to move. Any broker passes the
request on to the controller. BROKER_ID_NOT_REGISTERED answers for an id of which nothing is known.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import forward, is_elsewhere
from millstream.handlers.request import RequestContext
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Forget a broker that is gone."""
    if is_elsewhere(services):
        return await forward(services, context, request, UnregisterBrokerResponse)
    await services.controller.replicas.unregister(BrokerId(request.broker_id))
    return UnregisterBrokerResponse(error_code=ErrorCode.NONE.code)


def failed(
    context: RequestContext, request: UnregisterBrokerRequest, error: KafkaError
) -> UnregisterBrokerResponse:
    """Refuse the request."""
    return UnregisterBrokerResponse(error_code=error.error.code, error_message=error.message)
