"""DescribeProducers: API key 61, versions 0."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class TopicRequest(Struct):
    """One of ``DescribeProducersRequest.topics``."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    """Request of DescribeProducers."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    """One of ``PartitionResponse.active_producers``."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """One of ``TopicResponse.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """One of ``DescribeProducersResponse.topics``."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    """Response of DescribeProducers."""

    throttle_time_ms: int = int32(default=0)
    topics: list[TopicResponse] = array(TopicResponse)
