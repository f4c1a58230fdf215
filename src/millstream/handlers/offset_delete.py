"""OffsetDelete (key 47), version 0 (KIP-496).

Forgets committed offsets of partitions that no member of the group reads: of any partition while
the group is empty, and of topics that nobody subscribes to while it is a group of consumers.
"""

from __future__ import annotations

from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Forget what may be forgotten; partitions that do not exist are answered first."""
    access = access_of(services, context)
    if access is not None and not access.allows(
        AclOperation.DELETE, AclResource.GROUP, request.group_id
    ):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    answers: dict[str, list[OffsetDeleteResponsePartition]] = {}
    if access is not None:
        request.topics, refused = access.split(
            AclOperation.READ, AclResource.TOPIC, request.topics, lambda topic: topic.name
        )
        for topic in refused:
            answers[topic.name] = [
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED.code,
                )
                for partition in topic.partitions
            ]
    known = []
    for topic in request.topics:
        image = services.metadata.topic(topic.name)
        count = 0 if image is None else len(image.partitions)
        present = []
        for partition in topic.partitions:
            if 0 <= partition.partition_index < count:
                present.append(partition)
            else:
                answers.setdefault(topic.name, []).append(
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code,
                    )
                )
        if present:
            known.append(OffsetDeleteRequestTopic(name=topic.name, partitions=present))
    request.topics = known
    response = await services.groups.delete_offsets(request)
    for answer in response.topics:
        answers.setdefault(answer.name, []).extend(answer.partitions)
    return OffsetDeleteResponse(
        error_code=response.error_code,
        topics=[
            OffsetDeleteResponseTopic(name=name, partitions=partitions)
            for name, partitions in answers.items()
        ],
    )


def failed(
    context: RequestContext, request: OffsetDeleteRequest, error: KafkaError
) -> OffsetDeleteResponse:
    """Refuse the request."""
    return OffsetDeleteResponse(error_code=error.error.code, topics=[])
