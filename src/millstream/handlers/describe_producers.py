"""DescribeProducers (key 61), version 0 (KIP-664).

The producers that each partition remembers: id, epoch, last sequence and timestamp, where an open
transaction begins (−1: there is none), and the epoch of the coordinator that wrote the last marker
(−1: there was none). That is what it takes to end a transaction whose coordinator knows nothing of
it any more, by WriteTxnMarkers. Only the leader answers. The client
needs READ on the topic.
"""

from __future__ import annotations

from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import validate_topic_name
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from millstream.runtime.replicas.partition_requests import active_producers
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Tell the producers of partitions, each for itself."""
    access = access_of(services, context)
    topics = []
    for topic in request.topics:
        try:
            _check_topic(services, topic.name, access)
        except KafkaError as error:
            answers = [_refused(index, error) for index in topic.partition_indexes]
        else:
            answers = [_describe(services, topic.name, index) for index in topic.partition_indexes]
        topics.append(TopicResponse(name=topic.name, partitions=answers))
    return DescribeProducersResponse(topics=topics)


def failed(
    context: RequestContext, request: DescribeProducersRequest, error: KafkaError
) -> DescribeProducersResponse:
    """Refuse every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_refused(index, error) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _check_topic(services: Services, name: str, access: Access | None) -> None:
    validate_topic_name(name)
    if access is not None and not access.allows(AclOperation.READ, AclResource.TOPIC, name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if services.metadata.topic(name) is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        )


def _describe(services: Services, topic: str, index: int) -> PartitionResponse:
    try:
        producers = active_producers(services.partitions.get(topic, index))
    except KafkaError as error:
        return _refused(index, error)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE.code,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.current_txn_first_offset,
            )
            for each in producers
        ],
    )


def _refused(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=error.error.code,
        error_message=error.message,
        active_producers=[],
    )
