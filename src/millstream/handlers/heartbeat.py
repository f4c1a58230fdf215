"""Heartbeat (key 12), versions 0 to 4.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1, 2     throttle time; throttled after the answer
3        static members (KIP-345)
4        flexible
=======  ====================================================================================

While the coordinator loads, a heartbeat succeeds: the member need not do anything about it.
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: HeartbeatRequest
) -> Deferred[HeartbeatResponse]:
    """Renew the member's session."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    return services.groups.heartbeat(request)


def failed(
    context: RequestContext, request: HeartbeatRequest, error: KafkaError
) -> HeartbeatResponse:
    """Refuse the request."""
    code = error.error
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.NONE
    return HeartbeatResponse(error_code=code.code)
