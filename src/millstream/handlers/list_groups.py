"""ListGroups (key 16), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1, 2     throttle time; throttled after the answer
3        flexible
4        states, and a filter by them (KIP-518)
5        types, and a filter by them (KIP-848)
=======  ====================================================================================

Filters ignore case. While a coordinator loads the list would have holes, so it is refused.
"""

from __future__ import annotations

from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ListGroupsRequest
) -> ListGroupsResponse:
    """List the groups that this broker coordinates."""
    access = access_of(services, context)
    sees_all = access is None or access.on_cluster(AclOperation.DESCRIBE, tell_denied=False)
    groups: list[ListedGroup] = []
    for reply in services.groups.list_groups(
        states=request.states_filter, types=request.types_filter
    ):
        try:
            groups += await reply
        except KafkaError as error:
            if error.error is not ErrorCode.NOT_COORDINATOR:
                raise
    if access is not None and not sees_all:
        groups, _ = access.split(
            AclOperation.DESCRIBE,
            AclResource.GROUP,
            groups,
            lambda group: group.group_id,
            tell_denied=False,
        )
    return ListGroupsResponse(error_code=ErrorCode.NONE.code, groups=groups)


def failed(
    context: RequestContext, request: ListGroupsRequest, error: KafkaError
) -> ListGroupsResponse:
    """Refuse the request."""
    return ListGroupsResponse(error_code=error.error.code, groups=[])
