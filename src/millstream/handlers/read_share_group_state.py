"""ReadShareGroupState (key 84), version 0.

The leader of share partitions reads their state and makes its leader epoch known (KIP-932). A
leader epoch below the known one is FENCED_LEADER_EPOCH, a share partition without state
INVALID_REQUEST.

It is served to brokers, on every listener, as Apache Kafka serves it; a client has no use for it.
A request without a group, or with a topic without partitions, has an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.request import RequestContext
from millstream.handlers.share_state_results import Outcome, error_fields, refused, settled
from millstream.model.errors import KafkaError
from millstream.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from millstream.runtime.services import Services
from millstream.share.state import SharePartitionKey, ShareState


async def handle(
    services: Services, context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Return the state of each share partition."""
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return ReadShareGroupStateResponse(results=[])
    coordinator = services.share_coordinator
    begun = []
    for topic in request.topics:
        for each in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            begun.append(
                (
                    topic.topic_id,
                    each.partition,
                    coordinator.read(key, leader_epoch=each.leader_epoch),
                )
            )
    outcomes = await settled(begun)
    return _response(outcomes)


def failed(
    context: RequestContext, request: ReadShareGroupStateRequest, error: KafkaError
) -> ReadShareGroupStateResponse:
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


def _response(outcomes: Iterable[Outcome[ShareState]]) -> ReadShareGroupStateResponse:
    topics: dict[bytes, ReadStateResult] = {}
    for topic_id, partition, outcome in outcomes:
        code, message = error_fields(outcome)
        state = ShareState(0, 0) if isinstance(outcome, KafkaError) else outcome
        result = PartitionResult(
            partition=partition,
            error_code=code,
            error_message=message,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[
                StateBatch(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_state=each.delivery_state,
                    delivery_count=each.delivery_count,
                )
                for each in state.state_batches
            ],
        )
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ReadStateResult(topic_id=topic_id, partitions=[])
        topic.partitions.append(result)
    return ReadShareGroupStateResponse(results=list(topics.values()))
