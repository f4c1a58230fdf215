"""ReadShareGroupStateSummary (key 87), versions 0 to 1.

The group coordinator reads where share partitions start (KIP-932); version 1 has the count of
completed deliveries (KIP-1226). A share partition without state starts at -1.

It is served to brokers, on every listener, as Apache Kafka serves it; a client has no use for it.
A request without a group, or with a topic without partitions, has an empty answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.handlers.request import RequestContext
from millstream.handlers.share_state_results import Outcome, error_fields, refused, settled
from millstream.model.errors import KafkaError
from millstream.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from millstream.runtime.services import Services
from millstream.share.state import SharePartitionKey, ShareStateSummary


async def handle(
    services: Services, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Return the summary of each share partition."""
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return ReadShareGroupStateSummaryResponse(results=[])
    coordinator = services.share_coordinator
    begun = []
    for topic in request.topics:
        for each in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, each.partition)
            begun.append((topic.topic_id, each.partition, coordinator.read_summary(key)))
    outcomes = await settled(begun)
    return _response(outcomes)


def failed(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest, error: KafkaError
) -> ReadShareGroupStateSummaryResponse:
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


def _response(outcomes: Iterable[Outcome[ShareStateSummary]]) -> ReadShareGroupStateSummaryResponse:
    topics: dict[bytes, ReadStateSummaryResult] = {}
    for topic_id, partition, outcome in outcomes:
        code, message = error_fields(outcome)
        summary = ShareStateSummary(0, 0, 0, -1) if isinstance(outcome, KafkaError) else outcome
        result = PartitionResult(
            partition=partition,
            error_code=code,
            error_message=message,
            state_epoch=summary.state_epoch,
            leader_epoch=summary.leader_epoch,
            start_offset=summary.start_offset,
            delivery_complete_count=summary.delivery_complete_count,
        )
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ReadStateSummaryResult(topic_id=topic_id, partitions=[])
        topic.partitions.append(result)
    return ReadShareGroupStateSummaryResponse(results=list(topics.values()))
