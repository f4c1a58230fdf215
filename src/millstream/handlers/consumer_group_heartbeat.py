"""ConsumerGroupHeartbeat (key 68), versions 0 and 1 (KIP-848).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        the consumer protocol
1        subscriptions by regular expression; members make their ids themselves (KIP-1082)
=======  ====================================================================================

UNSUPPORTED_VERSION while the feature `group.version` is below 1, or
`group.coordinator.rebalance.protocols` does not name the protocol.
"""

from __future__ import annotations

from millstream.handlers.groups import check_member_access, require_consumer_protocol, subscriber
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> Deferred[ConsumerGroupHeartbeatResponse]:
    """Let a member join, follow its assignment, or leave."""
    require_consumer_protocol(services)
    check_member_access(services, context, request.group_id, request.subscribed_topic_names)
    return services.groups.consumer_group_heartbeat(request, subscriber(services, context))


def failed(
    context: RequestContext, request: ConsumerGroupHeartbeatRequest, error: KafkaError
) -> ConsumerGroupHeartbeatResponse:
    """Refuse the request."""
    return ConsumerGroupHeartbeatResponse(
        error_code=error.error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
