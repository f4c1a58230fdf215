"""ShareAcknowledge (key 79), versions 1 to 2 (KIP-932).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
1        as released; 0 was of the early access
2        renewing of locks (KIP-1222), the lock's duration in the answer
=======  ====================================================================================

What a consumer says of records that it holds: accepted, to be delivered again, rejected, still in
work, or not there. Answered once it is persisted. With the final epoch the session ends, and what
the consumer still holds is released.
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.handlers.share_requests import (
    FIRST_VERSION_WITH_RENEW,
    LEADER_CHANGED,
    Acknowledged,
    acknowledge,
    endpoints_of,
    identity,
    leader_of,
    unreadable,
)
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from millstream.runtime.services import Services
from millstream.runtime.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey


async def handle(
    services: Services, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Take the acknowledgements, once the session's epoch is right."""
    group_id, member_id = identity(services, context, request.group_id, request.member_id)
    key = SessionKey(group_id, member_id)
    sessions = services.shares.sessions
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == FINAL_EPOCH:
        sessions.get(key)
    else:
        sessions.advance(key, epoch)
    batches = {
        (topic.topic_id, each.partition_index): each.acknowledgement_batches
        for topic in request.topics
        for each in topic.partitions
    }
    may_renew = request.is_renew_ack and context.version >= FIRST_VERSION_WITH_RENEW
    not_allowed = unreadable(services, context, (topic.topic_id for topic in request.topics))
    results = await acknowledge(
        services, group_id, member_id, batches, may_renew=may_renew, not_allowed=not_allowed
    )
    if epoch == FINAL_EPOCH:
        sessions.end(key)
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=services.shares.settings_of(
            group_id
        ).rules.record_lock_duration_ms,
        error_code=0,
        responses=[],
        node_endpoints=[],
    )
    _fill(services, context.connection.listener, response, results)
    return response


def failed(
    context: RequestContext, request: ShareAcknowledgeRequest, error: KafkaError
) -> ShareAcknowledgeResponse:
    """Refuse the request as a whole."""
    return ShareAcknowledgeResponse(
        error_code=error.error.code, error_message=error.message, responses=[], node_endpoints=[]
    )


def _fill(
    services: Services,
    listener: str,
    response: ShareAcknowledgeResponse,
    results: dict[tuple[TopicId, int], Acknowledged],
) -> None:
    topics: dict[TopicId, ShareAcknowledgeTopicResponse] = {}
    leaders = []
    for (topic_id, index), result in results.items():
        data = PartitionData(
            partition_index=index,
            error_code=result.error.code,
            error_message=result.message,
            current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        )
        if result.error in LEADER_CHANGED:
            leader, leader_epoch = leader_of(services, topic_id, index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=leader_epoch)
            leaders.append(leader)
        if topic_id not in topics:
            topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=[])
            response.responses.append(topics[topic_id])
        topics[topic_id].partitions.append(data)
    for node, host, port in endpoints_of(services, leaders, listener):
        response.node_endpoints.append(
            NodeEndpoint(node_id=node.broker_id, host=host, port=port, rack=node.rack)
        )
