"""DescribeGroups (key 15), versions 0 to 6.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1, 2     throttle time; throttled after the answer
3        authorized operations (KIP-430)
4        instance ids of static members (KIP-345)
5        flexible
6        GROUP_ID_NOT_FOUND for a group that is not there (KIP-1043); Dead without an error before
=======  ====================================================================================

Groups of the classic protocol, and those that merely store offsets; others are not found here.
The client needs DESCRIBE on each group: GROUP_AUTHORIZATION_FAILED otherwise.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers import authorized_operations
from millstream.handlers.access import access_of
from millstream.handlers.groups import describable_groups
from millstream.handlers.request import RequestContext
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_AUTHORIZED_OPERATIONS: Final = 3


async def handle(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Describe each group."""
    access = access_of(services, context)
    allowed, refused = describable_groups(access, request.groups)
    pending = [
        (group_id, services.groups.describe_group(group_id, context.version))
        for group_id in allowed
    ]
    groups = [await _finish(group_id, reply) for group_id, reply in pending]
    if (
        context.version >= _FIRST_VERSION_WITH_AUTHORIZED_OPERATIONS
        and request.include_authorized_operations
    ):
        for group in groups:
            if group.error_code == ErrorCode.NONE.code:
                group.authorized_operations = authorized_operations.of_group(access, group.group_id)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DescribeGroupsResponse(groups=[*(_refused(each, error) for each in refused), *groups])


def failed(
    context: RequestContext, request: DescribeGroupsRequest, error: KafkaError
) -> DescribeGroupsResponse:
    """Refuse every group."""
    return DescribeGroupsResponse(
        groups=[_refused(group_id, error.error) for group_id in request.groups]
    )


async def _finish(group_id: str, reply: Deferred[DescribedGroup]) -> DescribedGroup:
    try:
        return await reply
    except KafkaError as error:
        return _refused(group_id, error.error)


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
