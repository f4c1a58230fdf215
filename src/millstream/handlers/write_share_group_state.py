"""WriteShareGroupState (key 85), versions 0 to 1.

The leader of share partitions stores what has changed (KIP-932); version 1 has the count of
completed deliveries (KIP-1226). An epoch below the known one is FENCED_LEADER_EPOCH or
FENCED_STATE_EPOCH, a share partition without state INVALID_REQUEST.

It is served to brokers, on every listener, as Apache Kafka serves it; a client has no use for it.
A request without a group, or with a topic without partitions, has an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.request import RequestContext
from millstream.handlers.share_state_results import Outcome, error_fields, refused, settled
from millstream.model.errors import KafkaError
from millstream.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from millstream.runtime.services import Services
from millstream.share.state import SharePartitionKey, ShareStateUpdate, StateBatch


async def handle(
    services: Services, context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Store what has changed of each share partition."""
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return WriteShareGroupStateResponse(results=[])
    coordinator = services.share_coordinator
    begun = []
    for topic in request.topics:
        for each in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            begun.append((topic.topic_id, each.partition, coordinator.write(key, _update(each))))
    outcomes = await settled(begun)
    return _response(outcomes)


def failed(
    context: RequestContext, request: WriteShareGroupStateRequest, error: KafkaError
) -> WriteShareGroupStateResponse:
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


def _response(outcomes: Iterable[Outcome[SharePartitionKey]]) -> WriteShareGroupStateResponse:
    topics: dict[bytes, WriteStateResult] = {}
    for topic_id, partition, outcome in outcomes:
        code, message = error_fields(outcome)
        result = PartitionResult(partition=partition, error_code=code, error_message=message)
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = WriteStateResult(topic_id=topic_id, partitions=[])
        topic.partitions.append(result)
    return WriteShareGroupStateResponse(results=list(topics.values()))


def _update(data: PartitionData) -> ShareStateUpdate:
    return ShareStateUpdate(
        data.state_epoch,
        data.leader_epoch,
        data.start_offset,
        data.delivery_complete_count,
        tuple(
            StateBatch(
                each.first_offset, each.last_offset, each.delivery_state, each.delivery_count
            )
            for each in data.state_batches
        ),
    )
