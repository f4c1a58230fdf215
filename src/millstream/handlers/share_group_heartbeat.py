"""ShareGroupHeartbeat (key 76), version 1 (KIP-932).

A member of a share group joins with epoch 0 and an id that it has made itself, says what it
subscribes to, is told its partitions, and leaves with epoch -1. UNSUPPORTED_VERSION while the
feature `share.version` is below 1.
"""

from __future__ import annotations

from millstream.handlers.groups import caller, check_member_access, require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import KafkaError
from millstream.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> Deferred[ShareGroupHeartbeatResponse]:
    """Let a member join, follow its assignment, or leave."""
    require_share_groups(services)
    check_member_access(services, context, request.group_id, request.subscribed_topic_names)
    return services.share_groups.heartbeat(request, caller(context))


def failed(
    context: RequestContext, request: ShareGroupHeartbeatRequest, error: KafkaError
) -> ShareGroupHeartbeatResponse:
    """Refuse the request."""
    return ShareGroupHeartbeatResponse(
        error_code=error.error.code,
        error_message=error.message,
        member_epoch=0,
        heartbeat_interval_ms=0,
    )
