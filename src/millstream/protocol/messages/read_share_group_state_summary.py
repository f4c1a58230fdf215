"""ReadShareGroupStateSummary: API key 87, versions 0 to 1."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PartitionData(Struct):
    """One of ``ReadStateSummaryData.partitions``."""

    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Struct):
    """One of ``ReadShareGroupStateSummaryRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+"):
    """Request of ReadShareGroupStateSummary."""

    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Struct):
    """One of ``ReadStateSummaryResult.partitions``."""

    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    """One of ``ReadShareGroupStateSummaryResponse.results``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    """Response of ReadShareGroupStateSummary."""

    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
