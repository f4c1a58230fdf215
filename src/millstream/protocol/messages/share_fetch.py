"""ShareFetch: API key 78, versions 1 to 2."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import (
    array,
    bool_,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    topic_id_,
)
from millstream.protocol.message import Request, Response
from millstream.protocol.outgoing import Records
from millstream.protocol.schema import Struct


class AcknowledgementBatch(Struct):
    """One of ``FetchPartition.acknowledgement_batches``."""

    first_offset: int = int64()
    last_offset: int = int64()
    acknowledge_types: list[int] = array(int8())


class FetchPartition(Struct):
    """One of ``FetchTopic.partitions``."""

    partition_index: int = int32()
    acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)


class FetchTopic(Struct):
    """One of ``ShareFetchRequest.topics``."""

    topic_id: TopicId = topic_id_()
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """One of ``ShareFetchRequest.forgotten_topics_data``."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+"):
    """Request of ShareFetch."""

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32()
    batch_size: int = int32()
    share_acquire_mode: int = int8("2+", default=0, ignorable=True)
    is_renew_ack: bool = bool_("2+", default=False)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class LeaderIdAndEpoch(Struct):
    """The value of ``PartitionData.current_leader``."""

    leader_id: int = int32()
    leader_epoch: int = int32()


class AcquiredRecords(Struct):
    """One of ``PartitionData.acquired_records``."""

    first_offset: int = int64()
    last_offset: int = int64()
    delivery_count: int = int16()


class PartitionData(Struct):
    """One of ``ShareFetchableTopicResponse.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acknowledge_error_code: int = int16()
    acknowledge_error_message: str | None = string(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
    records: Records = records_()
    acquired_records: list[AcquiredRecords] = array(AcquiredRecords)


class ShareFetchableTopicResponse(Struct):
    """One of ``ShareFetchResponse.responses``."""

    topic_id: TopicId = topic_id_()
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """One of ``ShareFetchResponse.node_endpoints``."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    """Response of ShareFetch."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32()
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
