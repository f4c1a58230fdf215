"""DeleteShareGroupState: API key 86, versions 0."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PartitionData(Struct):
    """One of ``DeleteStateData.partitions``."""

    partition: int = int32()


class DeleteStateData(Struct):
    """One of ``DeleteShareGroupStateRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    """Request of DeleteShareGroupState."""

    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    """One of ``DeleteStateResult.partitions``."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class DeleteStateResult(Struct):
    """One of ``DeleteShareGroupStateResponse.results``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    """Response of DeleteShareGroupState."""

    results: list[DeleteStateResult] = array(DeleteStateResult)
