"""CreatePartitions: API key 37, versions 0 to 3."""

from __future__ import annotations

from millstream.protocol.fields import array, bool_, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class CreatePartitionsAssignment(Struct):
    """One of ``CreatePartitionsTopic.assignments``."""

    broker_ids: list[int] = array(int32())


class CreatePartitionsTopic(Struct):
    """One of ``CreatePartitionsRequest.topics``."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """Request of CreatePartitions."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = bool_()


class CreatePartitionsTopicResult(Struct):
    """One of ``CreatePartitionsResponse.results``."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """Response of CreatePartitions."""

    throttle_time_ms: int = int32(default=0)
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
