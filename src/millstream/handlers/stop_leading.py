"""StopLeading (key 10002), version 0: a broker that is about to stop gives its leaderships away.

The answer names the partitions that no other broker can lead.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.broker import BrokerId
from millstream.model.errors import KafkaError
from millstream.protocol.messages.stop_leading import (
    StillLed,
    StopLeadingRequest,
    StopLeadingResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: StopLeadingRequest
) -> StopLeadingResponse:
    """Elect others where there are any."""
    remaining = await cluster_of(services).controller.replicas.stop_leading(
        BrokerId(request.broker_id), request.broker_epoch
    )
    return StopLeadingResponse(
        remaining=[StillLed(topic=each.topic, index=each.partition) for each in remaining]
    )


def failed(
    context: RequestContext, request: StopLeadingRequest, error: KafkaError
) -> StopLeadingResponse:
    """Refuse the request."""
    return StopLeadingResponse(error_code=error.error.code, remaining=[])
