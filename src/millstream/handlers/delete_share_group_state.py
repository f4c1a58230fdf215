"""DeleteShareGroupState (key 86), version 0.

The group coordinator forgets the state of share partitions (KIP-932); it succeeds where there is
none.

It is served to brokers, on every listener, as Apache Kafka serves it; a client has no use for it.
A request without a group, or with a topic without partitions, has an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.request import RequestContext
from millstream.handlers.share_state_results import Outcome, error_fields, refused, settled
from millstream.model.errors import KafkaError
from millstream.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from millstream.runtime.services import Services
from millstream.share.state import SharePartitionKey


async def handle(
    services: Services, context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Forget the state of each share partition."""
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return DeleteShareGroupStateResponse(results=[])
    coordinator = services.share_coordinator
    begun = []
    for topic in request.topics:
        for each in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            begun.append((topic.topic_id, each.partition, coordinator.delete(key)))
    outcomes = await settled(begun)
    return _response(outcomes)


def failed(
    context: RequestContext, request: DeleteShareGroupStateRequest, error: KafkaError
) -> DeleteShareGroupStateResponse:
    """Refuse every share partition."""
    return _response(
        refused(
            (
                (topic.topic_id, [each.partition for each in topic.partitions])
                for topic in request.topics
            ),
            error,
        )
    )


def _response(outcomes: Iterable[Outcome[SharePartitionKey]]) -> DeleteShareGroupStateResponse:
    topics: dict[bytes, DeleteStateResult] = {}
    for topic_id, partition, outcome in outcomes:
        code, message = error_fields(outcome)
        result = PartitionResult(partition=partition, error_code=code, error_message=message)
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = DeleteStateResult(topic_id=topic_id, partitions=[])
        topic.partitions.append(result)
    return DeleteShareGroupStateResponse(results=list(topics.values()))
