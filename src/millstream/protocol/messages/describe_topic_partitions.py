"""DescribeTopicPartitions: API key 75, versions 0."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, bool_, int16, int32, string, struct, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class TopicRequest(Struct):
    """One of ``DescribeTopicPartitionsRequest.topics``."""

    name: str = string()


class Cursor(Struct):
    """The value of ``DescribeTopicPartitionsRequest.cursor`` and others."""

    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    """Request of DescribeTopicPartitions."""

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    """One of ``DescribeTopicPartitionsResponseTopic.partitions``."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(int32())
    isr_nodes: list[int] = array(int32())
    eligible_leader_replicas: list[int] | None = array(int32(), nullable="0+", default=None)
    last_known_elr: list[int] | None = array(int32(), nullable="0+", default=None)
    offline_replicas: list[int] = array(int32())


class DescribeTopicPartitionsResponseTopic(Struct):
    """One of ``DescribeTopicPartitionsResponse.topics``."""

    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: TopicId = topic_id_()
    is_internal: bool = bool_(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(
        DescribeTopicPartitionsResponsePartition
    )
    topic_authorized_operations: int = int32(default=-2147483648)


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    """Response of DescribeTopicPartitions."""

    throttle_time_ms: int = int32(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
