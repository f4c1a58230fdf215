"""ListOffsets: API key 2, versions 1 to 11."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ListOffsetsPartition(Struct):
    """One of ``ListOffsetsTopic.partitions``."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    """One of ``ListOffsetsRequest.topics``."""

    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    """Request of ListOffsets."""

    replica_id: int = int32()
    isolation_level: int = int8("2+", default=0)
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", default=0, ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    """One of ``ListOffsetsTopicResponse.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """One of ``ListOffsetsResponse.topics``."""

    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    """Response of ListOffsets."""

    throttle_time_ms: int = int32("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
