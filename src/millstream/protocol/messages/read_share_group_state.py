"""ReadShareGroupState: API key 84, versions 0."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int8, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PartitionData(Struct):
    """One of ``ReadStateData.partitions``."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Struct):
    """One of ``ReadShareGroupStateRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    """Request of ReadShareGroupState."""

    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Struct):
    """One of ``PartitionResult.state_batches``."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Struct):
    """One of ``ReadStateResult.partitions``."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Struct):
    """One of ``ReadShareGroupStateResponse.results``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    """Response of ReadShareGroupState."""

    results: list[ReadStateResult] = array(ReadStateResult)
