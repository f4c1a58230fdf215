"""ListPartitionReassignments (key 46), version 0 (KIP-455).

A null list of topics means all moves that are under way. Answered by the controller; any other
broker answers NOT_CONTROLLER.
"""

from __future__ import annotations

from millstream.controller.context import TopicState
from millstream.controller.reassignment import is_moving
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List the partitions that move, with their old and new replicas."""
    controller = services.controller
    controller.check_active()
    topics = controller.context.topics
    if request.topics is None:
        asked = [(topic, range(len(topic.partitions))) for topic in topics.values()]
        found = [_ongoing(topic, indices) for topic, indices in asked]
    else:
        found = [
            _ongoing(topics[each.name], each.partition_indexes)
            for each in request.topics
            if each.name in topics
        ]
    return ListPartitionReassignmentsResponse(
        error_code=ErrorCode.NONE.code,
        error_message=None,
        topics=[each for each in found if each.partitions],
    )


def failed(
    context: RequestContext, request: ListPartitionReassignmentsRequest, error: KafkaError
) -> ListPartitionReassignmentsResponse:
    """Refuse the request."""
    return ListPartitionReassignmentsResponse(
        error_code=error.error.code, error_message=error.message, topics=[]
    )


def _ongoing(topic: TopicState, indices: range | list[int]) -> OngoingTopicReassignment:
    moving = [
        (index, topic.partitions[index])
        for index in indices
        if 0 <= index < len(topic.partitions) and is_moving(topic.partitions[index])
    ]
    return OngoingTopicReassignment(
        name=topic.name,
        partitions=[
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding_replicas),
                removing_replicas=list(state.removing_replicas),
            )
            for index, state in moving
        ],
    )
