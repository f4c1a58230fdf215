"""JoinGroup (key 11), versions 0 to 9.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        a rebalance timeout apart from the session timeout (KIP-62)
2, 3     throttle time; throttled after the answer
4        a new member is sent back once with an id, MEMBER_ID_REQUIRED (KIP-394)
5        static members (KIP-345)
6        flexible
7        the protocol type in the answer (KIP-559)
8        why the client joins (KIP-800)
9        a leader can be told to skip the assignment (KIP-814)
=======  ====================================================================================

The answer waits until the generation begins that the member joins.
"""

from __future__ import annotations

from millstream.coordinator.group.responses import join_refused
from millstream.handlers.groups import caller
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_VERSION_WITH_NULL_PROTOCOL = 7


async def handle(
    services: Services, context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse:
    """Join, and wait for the generation."""
    if not request.group_id:
        refused = join_refused(ErrorCode.INVALID_GROUP_ID, request.member_id)
        return _fit_version(context, refused)
    if context.version < _FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms
    response = await services.groups.join_group(request, caller(context))
    return _fit_version(context, response)


def failed(
    context: RequestContext, request: JoinGroupRequest, error: KafkaError
) -> JoinGroupResponse:
    """Refuse the request."""
    return _fit_version(context, join_refused(error.error))


def _fit_version(context: RequestContext, response: JoinGroupResponse) -> JoinGroupResponse:
    """Write "no protocol" as the version writes it: null, or the empty string before."""
    if context.version >= _FIRST_VERSION_WITH_NULL_PROTOCOL:
        response.protocol_name = response.protocol_name or None
    else:
        response.protocol_name = response.protocol_name or ""
    return response
