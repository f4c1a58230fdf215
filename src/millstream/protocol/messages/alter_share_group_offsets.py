"""AlterShareGroupOffsets: API key 91, versions 0."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AlterShareGroupOffsetsRequestPartition(Struct):
    """One of ``AlterShareGroupOffsetsRequestTopic.partitions``."""

    partition_index: int = int32()
    start_offset: int = int64()


class AlterShareGroupOffsetsRequestTopic(Struct):
    """One of ``AlterShareGroupOffsetsRequest.topics``."""

    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(
        AlterShareGroupOffsetsRequestPartition
    )


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    """Request of AlterShareGroupOffsets."""

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponsePartition(Struct):
    """One of ``AlterShareGroupOffsetsResponseTopic.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    """One of ``AlterShareGroupOffsetsResponse.responses``."""

    topic_name: str = string()
    topic_id: TopicId = topic_id_()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(
        AlterShareGroupOffsetsResponsePartition
    )


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    """Response of AlterShareGroupOffsets."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(
        AlterShareGroupOffsetsResponseTopic
    )
