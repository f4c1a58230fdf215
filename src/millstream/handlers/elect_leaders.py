"""ElectLeaders (key 43), versions 0 to 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        preferred leaders (KIP-183)
1        the kind of election: preferred 0, unclean 1 (KIP-460); an error for the whole answer
2        flexible
=======  ====================================================================================

A null list of partitions means all of them; then those that need no election are left out. An
unclean election takes the longest log of the replicas that answer, and only where there is no
leader. Answered by the controller; any other broker says NOT_CONTROLLER.
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from millstream.runtime.controlling.replica_control import ElectionType
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elect, each partition for itself."""
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        reason = f"Unknown election type {request.election_type}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason) from None
    places = None
    if request.topic_partitions is not None:
        places = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    results = await services.controller.replicas.elect(election_type, places)
    by_topic: dict[str, list[PartitionResult]] = {}
    for place, error in results.items():
        by_topic.setdefault(place.topic, []).append(_result(place.partition, error))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in by_topic.items()
        ]
    )


def failed(
    context: RequestContext, request: ElectLeadersRequest, error: KafkaError
) -> ElectLeadersResponse:
    """Refuse every partition, and the request as a whole where there is room to say so."""
    return ElectLeadersResponse(
        error_code=error.error.code if context.version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_result(index, error) for index in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _result(index: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(
            partition_id=index, error_code=ErrorCode.NONE.code, error_message=None
        )
    return PartitionResult(
        partition_id=index, error_code=error.error.code, error_message=error.message
    )
