"""InitializeShareGroupState: API key 83, versions 0."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PartitionData(Struct):
    """One of ``InitializeStateData.partitions``."""

    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Struct):
    """One of ``InitializeShareGroupStateRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    """Request of InitializeShareGroupState."""

    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    """One of ``InitializeStateResult.partitions``."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class InitializeStateResult(Struct):
    """One of ``InitializeShareGroupStateResponse.results``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    """Response of InitializeShareGroupState."""

    results: list[InitializeStateResult] = array(InitializeStateResult)
