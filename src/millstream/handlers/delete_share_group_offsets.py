"""DeleteShareGroupOffsets (key 92), version 0 (KIP-932).

A group without members forgets all it knows of topics. NON_EMPTY_GROUP where there are members,
GROUP_ID_NOT_FOUND for a group that is not there or is of another kind, INVALID_GROUP_ID for an
empty id, UNKNOWN_TOPIC_OR_PARTITION for a topic of which the group knows nothing.
"""

from __future__ import annotations

from millstream.handlers.access import Access, access_of
from millstream.handlers.groups import require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> Deferred[DeleteShareGroupOffsetsResponse]:
    """Answer once the share coordinators have forgotten the state."""
    require_share_groups(services)
    access = access_of(services, context)
    if access is not None and not access.allows(
        AclOperation.DELETE, AclResource.GROUP, request.group_id
    ):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if access is None:
        return services.share_groups.delete_offsets(request)
    return spawn(_handle_allowed(services, request, access))


async def _handle_allowed(
    services: Services, request: DeleteShareGroupOffsetsRequest, access: Access
) -> DeleteShareGroupOffsetsResponse:
    """Leave out the topics that the client may not READ, and refuse them."""
    request.topics, refused = access.split(
        AclOperation.READ, AclResource.TOPIC, request.topics, lambda topic: topic.topic_name
    )
    response = await services.share_groups.delete_offsets(request)
    if not response.error_code:
        response.responses += [_not_allowed(services, topic) for topic in refused]
    return response


def _not_allowed(
    services: Services, topic: DeleteShareGroupOffsetsRequestTopic
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_TOPIC_ID,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
        error_message=ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
    )


def failed(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest, error: KafkaError
) -> DeleteShareGroupOffsetsResponse:
    """Refuse the request."""
    return DeleteShareGroupOffsetsResponse(
        error_code=error.error.code,
        error_message=error.message or error.error.name,
        responses=[],
    )
