"""ListPartitionReassignments: API key 46, versions 0."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ListPartitionReassignmentsTopics(Struct):
    """One of ``ListPartitionReassignmentsRequest.topics``."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    """Request of ListPartitionReassignments."""

    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    """One of ``OngoingTopicReassignment.partitions``."""

    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())


class OngoingTopicReassignment(Struct):
    """One of ``ListPartitionReassignmentsResponse.topics``."""

    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    """Response of ListPartitionReassignments."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
