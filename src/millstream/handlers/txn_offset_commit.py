"""TxnOffsetCommit (key 28), versions 0 to 5.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        throttled after the answer
2        leader epochs (KIP-320)
3        flexible; the consumer's generation, member and instance (KIP-447)
4        TRANSACTION_ABORTABLE (KIP-890)
5        the commit adds the group's partition to the transaction (KIP-890)
=======  ====================================================================================

Offsets are pending until the transaction's marker. As with OffsetCommit they are kept for
partitions that exist alone. A transaction coordinator that cannot be reached is
COORDINATOR_LOAD_IN_PROGRESS: clients send the request again, without looking for the group's
coordinator first; below version 2 they know COORDINATOR_NOT_AVAILABLE alone.
"""

from __future__ import annotations

from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from millstream.runtime.services import Services

_FIRST_VERSION_WITH_LOADING = 2


async def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Commit what can be committed, and say why the rest cannot."""
    access = access_of(services, context)
    _check_allowed(access, request)
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    response = failed(context, request, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    _refuse_unreadable(access, request, response)
    topic_ids: dict[str, TopicId] = {}
    known = []
    for topic in request.topics:
        image = services.metadata.topic(topic.name)
        if image is None:
            continue
        count = len(image.partitions)
        topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
        if topic.partitions:
            topic_ids[topic.name] = image.topic_id
            known.append(topic)
    if not known:
        return response
    request.topics = known
    try:
        committed = await services.groups.commit_transactional_offsets(
            request, context.version, topic_ids
        )
    except KafkaError as error:
        committed = failed(context, request, error)
    errors = {
        (topic.name, partition.partition_index): partition.error_code
        for topic in committed.topics
        for partition in topic.partitions
    }
    for answer in response.topics:
        for each in answer.partitions:
            each.error_code = errors.get((answer.name, each.partition_index), each.error_code)
    return response


def _check_allowed(access: Access | None, request: TxnOffsetCommitRequest) -> None:
    """Raise the KafkaError that refuses a client which may not WRITE to the transactional id, or
    READ the group.
    """
    if access is None:
        return
    resource = AclResource.TRANSACTIONAL_ID
    if not access.allows(AclOperation.WRITE, resource, request.transactional_id):
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not access.allows(AclOperation.READ, AclResource.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _refuse_unreadable(
    access: Access | None, request: TxnOffsetCommitRequest, response: TxnOffsetCommitResponse
) -> None:
    """Take the topics that the client may not READ out of the request, and refuse them."""
    if access is None:
        return
    request.topics, refused = access.split(
        AclOperation.READ, AclResource.TOPIC, request.topics, lambda topic: topic.name
    )
    names = {topic.name for topic in refused}
    for answer in response.topics:
        if answer.name in names:
            for each in answer.partitions:
                each.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED.code


def failed(
    context: RequestContext, request: TxnOffsetCommitRequest, error: KafkaError
) -> TxnOffsetCommitResponse:
    """Refuse every partition."""
    code = error.error
    if code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if is_loading and context.version < _FIRST_VERSION_WITH_LOADING:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code.code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
