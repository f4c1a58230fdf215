"""AlterShareGroupOffsets (key 91), version 0 (KIP-932).

Share partitions of a group without members begin anew at other offsets; a group that is not there
is made. NON_EMPTY_GROUP where there are members, GROUP_ID_NOT_FOUND for another kind of group,
INVALID_GROUP_ID for an empty id, UNKNOWN_TOPIC_OR_PARTITION for each partition that is not there.
"""

from __future__ import annotations

from millstream.handlers.access import Access, access_of
from millstream.handlers.groups import require_share_groups
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID
from millstream.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> Deferred[AlterShareGroupOffsetsResponse]:
    """Answer once the share coordinators have stored the offsets."""
    require_share_groups(services)
    access = access_of(services, context)
    if access is not None and not access.allows(
        AclOperation.READ, AclResource.GROUP, request.group_id
    ):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if access is None:
        return services.share_groups.alter_offsets(request)
    return spawn(_handle_allowed(services, request, access))


async def _handle_allowed(
    services: Services, request: AlterShareGroupOffsetsRequest, access: Access
) -> AlterShareGroupOffsetsResponse:
    """Leave out the topics that the client may not READ, and refuse them."""
    request.topics, refused = access.split(
        AclOperation.READ, AclResource.TOPIC, request.topics, lambda topic: topic.topic_name
    )
    response = await services.share_groups.alter_offsets(request)
    if not response.error_code:
        response.responses += [_not_allowed(services, topic) for topic in refused]
    return response


def _not_allowed(
    services: Services, topic: AlterShareGroupOffsetsRequestTopic
) -> AlterShareGroupOffsetsResponseTopic:
    image = services.metadata.topic(topic.topic_name)
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_TOPIC_ID if image is None else image.topic_id,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
                error_message=ErrorCode.TOPIC_AUTHORIZATION_FAILED.name,
            )
            for each in topic.partitions
        ],
    )


def failed(
    context: RequestContext, request: AlterShareGroupOffsetsRequest, error: KafkaError
) -> AlterShareGroupOffsetsResponse:
    """Refuse the request."""
    return AlterShareGroupOffsetsResponse(
        error_code=error.error.code,
        error_message=error.message or error.error.name,
        responses=[],
    )
