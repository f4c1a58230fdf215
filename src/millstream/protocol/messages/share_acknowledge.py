"""ShareAcknowledge: API key 79, versions 1 to 2."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import (
    array,
    bool_,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    topic_id_,
)
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class AcknowledgementBatch(Struct):
    """One of ``AcknowledgePartition.acknowledgement_batches``."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8())


class AcknowledgePartition(Struct):
    """One of ``AcknowledgeTopic.partitions``."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class AcknowledgeTopic(Struct):
    """One of ``ShareAcknowledgeRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[AcknowledgePartition] = array(AcknowledgePartition)


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+"):
    """Request of ShareAcknowledge."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    is_renew_ack: bool = bool_("2+", default=False)
    topics: list[AcknowledgeTopic] = array(AcknowledgeTopic)


class LeaderIdAndEpoch(Struct):
    """The value of ``PartitionData.current_leader``."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class PartitionData(Struct):
    """One of ``ShareAcknowledgeTopicResponse.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    """One of ``ShareAcknowledgeResponse.responses``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """One of ``ShareAcknowledgeResponse.node_endpoints``."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    """Response of ShareAcknowledge."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = array(ShareAcknowledgeTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
