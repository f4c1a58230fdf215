"""DescribeShareGroupOffsets: API key 90, versions 0 to 1."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """One of ``DescribeShareGroupOffsetsRequestGroup.topics``."""

    topic_name: str = string()
    partitions: list[int] = array(int32())


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """One of ``DescribeShareGroupOffsetsRequest.groups``."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
        DescribeShareGroupOffsetsRequestTopic, nullable="0+"
    )


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    """Request of DescribeShareGroupOffsets."""

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(
        DescribeShareGroupOffsetsRequestGroup
    )


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """One of ``DescribeShareGroupOffsetsResponseTopic.partitions``."""

    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """One of ``DescribeShareGroupOffsetsResponseGroup.topics``."""

    topic_name: str = string()
    topic_id: TopicId = topic_id_()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """One of ``DescribeShareGroupOffsetsResponse.groups``."""

    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(
        DescribeShareGroupOffsetsResponseTopic
    )
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    """Response of DescribeShareGroupOffsets."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(
        DescribeShareGroupOffsetsResponseGroup
    )
