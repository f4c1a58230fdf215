"""WriteShareGroupState: API key 85, versions 0 to 1."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int8, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class StateBatch(Struct):
    """One of ``PartitionData.state_batches``."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    """One of ``WriteStateData.partitions``."""

    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Struct):
    """One of ``WriteShareGroupStateRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    """Request of WriteShareGroupState."""

    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    """One of ``WriteStateResult.partitions``."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class WriteStateResult(Struct):
    """One of ``WriteShareGroupStateResponse.results``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    """Response of WriteShareGroupState."""

    results: list[WriteStateResult] = array(WriteStateResult)
