"""LeaveGroup (key 13), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1, 2     throttle time; throttled after the answer
3        several members at once, by member id or by instance id (KIP-345)
4        flexible
5        why the client leaves (KIP-800)
=======  ====================================================================================
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_MEMBERS = 3


async def handle(
    services: Services, context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse:
    """Remove the members from their group."""
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if context.version >= _FIRST_VERSION_WITH_MEMBERS:
        return await services.groups.leave_group(request)
    request.members = [MemberIdentity(member_id=request.member_id)]
    response = await services.groups.leave_group(request)
    return LeaveGroupResponse(error_code=response.members[0].error_code)


def failed(
    context: RequestContext, request: LeaveGroupRequest, error: KafkaError
) -> LeaveGroupResponse:
    """Refuse the request."""
    return LeaveGroupResponse(error_code=error.error.code)
