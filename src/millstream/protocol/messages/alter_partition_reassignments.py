"""AlterPartitionReassignments: API key 45, versions 0 to 1."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ReassignablePartition(Struct):
    """One of ``ReassignableTopic.partitions``."""

    partition_index: int = int32()
    replicas: list[int] | None = array(int32(), nullable="0+", default=None)


class ReassignableTopic(Struct):
    """One of ``AlterPartitionReassignmentsRequest.topics``."""

    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    """Request of AlterPartitionReassignments."""

    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = bool_("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    """One of ``ReassignableTopicResponse.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReassignableTopicResponse(Struct):
    """One of ``AlterPartitionReassignmentsResponse.responses``."""

    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    """Response of AlterPartitionReassignments."""

    throttle_time_ms: int = int32(default=0)
    allow_replication_factor_change: bool = bool_("1+", default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
