"""ElectLeaders (key 43), versions 0 to 2.

=======  ====================================================================================
version  what it brings
=======  ====================================================================================
0        preferred leaders (KIP-183)
1        the kind of election: preferred 0, unclean 1 (KIP-460); an error for the whole answer
2        flexible
=======  ====================================================================================

A null list of partitions means all of them: every topic is in the answer, and of its partitions
those that needed an election. An
unclean election takes the longest log of the replicas that answer, and only where there is no
leader. Answered by the controller; any other broker answers NOT_CONTROLLER.
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
from millstream.runtime.controlling.last_resort_elections import ElectionResults
from millstream.runtime.controlling.leader_elections import ElectionType
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
    if request.timeout_ms <= 0:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    asked = None
    if request.topic_partitions is not None:
        asked = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    results = await services.controller.replicas.elections.elect(election_type, asked)
    if request.topic_partitions is None:
        rows = _of_all_topics(services, results)
    else:
        rows = [
            (
                topic.topic,
                [
                    (index, results[TopicPartition(topic.topic, index)])
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions
        ]
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[_result(index, error) for index, error in outcomes],
            )
            for topic, outcomes in rows
        ]
    )


def _of_all_topics(
    services: Services, results: ElectionResults
) -> list[tuple[str, list[tuple[int, KafkaError | None]]]]:
    """Return the outcomes by topic; a topic where nothing was to be done has none."""
    outcomes: dict[str, list[tuple[int, KafkaError | None]]] = {
        image.name: [] for image in services.metadata.topics()
    }
    for topic_partition, error in results.items():
        outcomes.setdefault(topic_partition.topic, []).append((topic_partition.partition, error))
    return list(outcomes.items())


def failed(
    context: RequestContext, request: ElectLeadersRequest, error: KafkaError
) -> ElectLeadersResponse:
    """Refuse every partition, and the request as a whole in versions that have a field for it."""
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
