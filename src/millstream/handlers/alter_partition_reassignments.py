"""AlterPartitionReassignments (key 45), versions 0 and 1 (KIP-455).

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        begin moves, or with null replicas cancel them
1        a field: whether the number of replicas may change
=======  ====================================================================================

The answer leaves when the moves have begun; ListPartitionReassignments lists them. What
can be done without copying is done at once. Answered by the controller; any other broker answers
NOT_CONTROLLER. Nothing is waited for, but a time-out that leaves no time is REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.controller.assignment import check_manual_replicas
from millstream.controller.reassignment import origin_of
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from millstream.runtime.controlling.replica_control import Move
from millstream.runtime.services import Services

Outcomes = Mapping[TopicPartition, KafkaError | None]


async def handle(
    services: Services, context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel, each partition for itself."""
    services.controller.check_active()
    if not request.topics:
        return AlterPartitionReassignmentsResponse(error_code=0, error_message="", responses=[])
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    refused: dict[TopicPartition, KafkaError | None] = {}
    wanted = []
    for topic in request.topics:
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if not request.allow_replication_factor_change:
                refusal = _factor_refusal(services, topic_partition, partition)
                if refusal is not None:
                    refused[topic_partition] = refusal
                    continue
            wanted.append(Move(topic_partition, partition.replicas))
    outcomes = {**refused, **await services.controller.replicas.move(wanted)}
    return _response(request, outcomes)


def failed(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> AlterPartitionReassignmentsResponse:
    """Refuse the request as a whole, and every partition."""
    return AlterPartitionReassignmentsResponse(
        error_code=error.error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(each.partition_index, error) for each in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _factor_refusal(
    services: Services, topic_partition: TopicPartition, partition: ReassignablePartition
) -> KafkaError | None:
    topic = services.controller.context.topics.get(topic_partition.topic)
    if partition.replicas is None or topic is None:
        return None
    if not 0 <= topic_partition.partition < len(topic.partitions):
        return None
    state = topic.partitions[topic_partition.partition]
    live = services.controller.context.live_brokers
    try:
        check_manual_replicas(partition.replicas, {*live, *state.replicas}, None)
    except KafkaError as error:
        return error
    present = len(origin_of(state))
    if len(partition.replicas) == present:
        return None
    return KafkaError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"The replication factor is changed from {present} to {len(partition.replicas)}",
    )


def _response(
    request: AlterPartitionReassignmentsRequest, outcomes: Outcomes
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE.code,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _result(
                        each.partition_index,
                        outcomes[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _result(index: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index,
        error_code=(ErrorCode.NONE if error is None else error.error).code,
        error_message=None if error is None else error.message,
    )
