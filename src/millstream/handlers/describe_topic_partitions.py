"""DescribeTopicPartitions (key 75), version 0 (KIP-966).

Topics in the order of their names, a page of partitions at a time: an answer ends after as many
partitions as the request and `max.request.partition.size.limit` allow, and its cursor says where
the next request goes on. The client needs DESCRIBE on each topic: others are left out, or refused
if they were named. Eligible leader replicas are empty: this broker keeps none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from millstream.handlers import authorized_operations
from millstream.handlers.access import access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.topic import INTERNAL_TOPICS, ZERO_TOPIC_ID, validate_topic_name
from millstream.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe one page."""
    names = _chosen(services.metadata, request)
    access = access_of(services, context)
    refused: list[str] = []
    if access is not None:
        names, refused = access.split(AclOperation.DESCRIBE, AclResource.TOPIC, names, str)
    limit = min(
        services.config.current.max_request_partition_size_limit, request.response_partition_limit
    )
    live = services.metadata.seen_from(context.connection.listener)
    page = _Page(services.metadata, live, remaining=max(1, limit))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    cursor = request.cursor
    for name in names:
        if page.remaining == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        topic, next_partition = page.topic(name, start)
        topics.append(topic)
        if next_partition is not None:
            next_cursor = Cursor(topic_name=name, partition_index=next_partition)
            break
    for topic in topics:
        assert topic.name is not None
        topic.topic_authorized_operations = authorized_operations.of_topic(access, topic.name)
    if request.topics:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics += [_refused(name, error) for name in refused]
    return DescribeTopicPartitionsResponse(topics=topics, next_cursor=next_cursor)


def _refused(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error.code, name=name, topic_id=ZERO_TOPIC_ID, partitions=[]
    )


def failed(
    context: RequestContext, request: DescribeTopicPartitionsRequest, error: KafkaError
) -> DescribeTopicPartitionsResponse:
    """Refuse every topic that was named."""
    return DescribeTopicPartitionsResponse(
        topics=[_refused(topic.name, error.error) for topic in request.topics]
    )


def _chosen(metadata: MetadataCache, request: DescribeTopicPartitionsRequest) -> list[str]:
    """Return the names from the cursor on, in order."""
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    if not request.topics:
        asked = {image.name for image in metadata.topics()}
    else:
        asked = {topic.name for topic in request.topics}
        if cursor is None and "" in asked:
            # Apache Kafka takes the empty name for that of the cursor and fails.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a topic has no name")
        if cursor is not None and cursor.topic_name not in asked:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
                + cursor.topic_name,
            )
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "DescribeTopicPartitionsRequest cursor partition must be valid: "
            f"{cursor.partition_index}",
        )
    return sorted(name for name in asked if name >= first)


@dataclass(slots=True)
class _Page:
    """The answer being filled: ``remaining`` partitions fit in."""

    metadata: MetadataCache
    live: Collection[BrokerId]
    remaining: int

    def topic(
        self, name: str, start: int
    ) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
        """Describe a topic from partition ``start`` on, and return where to go on within it."""
        image = self.metadata.topic(name)
        if image is None:
            return _no_topic(name), None
        end = min(len(image.partitions), start + self.remaining)
        described = [self._partition(index, image.partitions[index]) for index in range(start, end)]
        self.remaining -= len(described)
        next_partition = end if start < end < len(image.partitions) else None
        return _topic(image, described), next_partition

    def _partition(
        self, index: int, state: PartitionState
    ) -> DescribeTopicPartitionsResponsePartition:
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.NONE.code,
            partition_index=index,
            leader_id=state.leader if state.leader in self.live else NO_LEADER,
            leader_epoch=state.leader_epoch,
            replica_nodes=list(state.replicas),
            isr_nodes=list(state.isr),
            eligible_leader_replicas=list(state.elr),
            last_known_elr=list(state.last_known_elr),
            offline_replicas=[each for each in state.replicas if each not in self.live],
        )


def _topic(
    image: TopicImage, partitions: list[DescribeTopicPartitionsResponsePartition]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE.code,
        name=image.name,
        topic_id=image.topic_id,
        is_internal=image.is_internal,
        partitions=partitions,
    )


def _no_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        validate_topic_name(name)
    except KafkaError as error:
        code = error.error
    return DescribeTopicPartitionsResponseTopic(
        error_code=code.code,
        name=name,
        topic_id=ZERO_TOPIC_ID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )
