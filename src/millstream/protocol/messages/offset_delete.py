"""OffsetDelete: API key 47, versions 0."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class OffsetDeleteRequestPartition(Struct):
    """One of ``OffsetDeleteRequestTopic.partitions``."""

    partition_index: int = int32()


class OffsetDeleteRequestTopic(Struct):
    """One of ``OffsetDeleteRequest.topics``."""

    name: str = string()
    partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)


class OffsetDeleteRequest(Request, key=47, versions="0", flexible="none"):
    """Request of OffsetDelete."""

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponsePartition(Struct):
    """One of ``OffsetDeleteResponseTopic.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetDeleteResponseTopic(Struct):
    """One of ``OffsetDeleteResponse.topics``."""

    name: str = string()
    partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)


class OffsetDeleteResponse(Response, key=47, versions="0", flexible="none"):
    """Response of OffsetDelete."""

    error_code: int = int16()
    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
