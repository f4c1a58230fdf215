"""SyncGroup (key 14), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1, 2     throttle time; throttled after the answer
3        static members (KIP-345)
4        flexible
5        protocol type and name, which are then mandatory (KIP-559)
=======  ====================================================================================

The leader brings everybody's assignment; the others wait for it.
"""

from __future__ import annotations

from millstream.coordinator.group.responses import sync_refused
from millstream.handlers.access import access_of
from millstream.handlers.request import Answer, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_PROTOCOL = 5


def handle(
    services: Services, context: RequestContext, request: SyncGroupRequest
) -> Answer | Deferred[SyncGroupResponse]:
    """Bring or wait for the assignment."""
    if context.version >= _FIRST_VERSION_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    ):
        return sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    access = access_of(services, context)
    if access is not None and not access.allows(
        AclOperation.READ, AclResource.GROUP, request.group_id
    ):
        return sync_refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        return sync_refused(ErrorCode.INVALID_GROUP_ID)
    return services.groups.sync_group(request)


def failed(
    context: RequestContext, request: SyncGroupRequest, error: KafkaError
) -> SyncGroupResponse:
    """Refuse the request."""
    return sync_refused(error.error)
