"""Produce: API key 0, versions 3 to 13."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import (
    Buffer,
    array,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    topic_id_,
)
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PartitionProduceData(Struct):
    """One of ``TopicProduceData.partition_data``."""

    index: int = int32()
    records: Buffer | None = records_(nullable="0+")


class TopicProduceData(Struct):
    """One of ``ProduceRequest.topic_data``."""

    name: str = string("0-12", default="", ignorable=True)
    topic_id: TopicId = topic_id_("13+", default=ZERO_TOPIC_ID, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Request, key=0, versions="3-13", flexible="9+"):
    """Request of Produce."""

    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """One of ``PartitionProduceResponse.record_errors``."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+", default=None)


class LeaderIdAndEpoch(Struct):
    """The value of ``PartitionProduceResponse.current_leader``."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """One of ``TopicProduceResponse.partition_responses``."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(
        BatchIndexAndErrorMessage, "8+", factory=list, ignorable=True
    )
    error_message: str | None = string("8+", nullable="0+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, "10+", tag=0, factory=LeaderIdAndEpoch
    )


class TopicProduceResponse(Struct):
    """One of ``ProduceResponse.responses``."""

    name: str = string("0-12", default="", ignorable=True)
    topic_id: TopicId = topic_id_("13+", default=ZERO_TOPIC_ID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """One of ``ProduceResponse.node_endpoints``."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ProduceResponse(Response, key=0, versions="3-13", flexible="9+"):
    """Response of Produce."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32(default=0)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, factory=list)
