"""DeleteGroups (key 42), versions 0 to 2 (KIP-229).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        flexible
=======  ====================================================================================

Forgets groups without members and the offsets they committed, or the state of their share
partitions.
"""

from __future__ import annotations

from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete each group once, however often it is named."""
    access = access_of(services, context)
    allowed, refused = list(dict.fromkeys(request.groups_names)), list[str]()
    if access is not None:
        allowed, refused = access.split(AclOperation.DELETE, AclResource.GROUP, allowed, str)
    pending = [(group_id, services.share_groups.delete_group(group_id)) for group_id in allowed]
    results = [await _finish(group_id, reply) for group_id, reply in pending]
    error = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return DeleteGroupsResponse(results=[*results, *(_refused(each, error) for each in refused)])


def failed(
    context: RequestContext, request: DeleteGroupsRequest, error: KafkaError
) -> DeleteGroupsResponse:
    """Refuse every group."""
    return DeleteGroupsResponse(
        results=[_refused(group_id, error) for group_id in request.groups_names]
    )


async def _finish(group_id: str, reply: Deferred[DeletableGroupResult]) -> DeletableGroupResult:
    try:
        return await reply
    except KafkaError as error:
        return _refused(group_id, error)


def _refused(group_id: str, error: KafkaError) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=group_id, error_code=error.error.code)
