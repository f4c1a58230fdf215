"""InitializeShareGroupState (key 83), version 0.

The group coordinator begins the state of share partitions (KIP-932). A state epoch below the known
one is FENCED_STATE_EPOCH, a topic that is not there UNKNOWN_TOPIC_OR_PARTITION.

It is served to brokers, on every listener, as Apache Kafka serves it; a client has no use for it.
A request without a group has an empty answer; a topic without partitions is left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.request import RequestContext
from millstream.handlers.share_state_results import Outcome, error_fields, refused, settled
from millstream.model.errors import KafkaError
from millstream.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from millstream.runtime.services import Services
from millstream.share.state import SharePartitionKey


async def handle(
    services: Services, context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Begin the state of each share partition."""
    if not request.group_id:
        return InitializeShareGroupStateResponse(results=[])
    coordinator = services.share_coordinator
    begun = []
    for topic in request.topics:
        for each in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            begun.append(
                (
                    topic.topic_id,
                    each.partition,
                    coordinator.initialize(
                        key, state_epoch=each.state_epoch, start_offset=each.start_offset
                    ),
                )
            )
    outcomes = await settled(begun)
    return _response(outcomes)


def failed(
    context: RequestContext, request: InitializeShareGroupStateRequest, error: KafkaError
) -> InitializeShareGroupStateResponse:
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


def _response(outcomes: Iterable[Outcome[SharePartitionKey]]) -> InitializeShareGroupStateResponse:
    topics: dict[bytes, InitializeStateResult] = {}
    for topic_id, partition, outcome in outcomes:
        code, message = error_fields(outcome)
        result = PartitionResult(partition=partition, error_code=code, error_message=message)
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = InitializeStateResult(topic_id=topic_id, partitions=[])
        topic.partitions.append(result)
    return InitializeShareGroupStateResponse(results=list(topics.values()))
