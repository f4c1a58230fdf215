"""Fetch: API key 1, versions 4 to 18."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import (
    NO_UUID,
    array,
    int8,
    int16,
    int32,
    int64,
    records_,
    string,
    struct,
    topic_id_,
    uuid,
)
from millstream.protocol.message import Request, Response
from millstream.protocol.outgoing import Records
from millstream.protocol.schema import Struct


class ReplicaState(Struct):
    """The value of ``FetchRequest.replica_state``."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    """One of ``FetchTopic.partitions``."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0, default=NO_UUID, ignorable=True)
    high_watermark: int = int64("18+", tag=1, default=9223372036854775807, ignorable=True)


class FetchTopic(Struct):
    """One of ``FetchRequest.topics``."""

    topic: str = string("0-12", default="", ignorable=True)
    topic_id: TopicId = topic_id_("13+", default=ZERO_TOPIC_ID, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    """One of ``FetchRequest.forgotten_topics_data``."""

    topic: str = string("7-12", default="", ignorable=True)
    topic_id: TopicId = topic_id_("13+", default=ZERO_TOPIC_ID, ignorable=True)
    partitions: list[int] = array(int32())


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    """Request of Fetch."""

    cluster_id: str | None = string("12+", nullable="0+", tag=0, default=None, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tag=1, factory=ReplicaState)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8(default=0)
    session_id: int = int32("7+", default=0, ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+", factory=list)
    rack_id: str = string("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    """The value of ``PartitionData.diverging_epoch``."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class LeaderIdAndEpoch(Struct):
    """The value of ``PartitionData.current_leader``."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class SnapshotId(Struct):
    """The value of ``PartitionData.snapshot_id``."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """One of ``PartitionData.aborted_transactions``."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    """One of ``FetchableTopicResponse.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tag=0, factory=EpochEndOffset)
    current_leader: LeaderIdAndEpoch = struct(
        LeaderIdAndEpoch, "12+", tag=1, factory=LeaderIdAndEpoch
    )
    snapshot_id: SnapshotId = struct(SnapshotId, "12+", tag=2, factory=SnapshotId)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: Records | None = records_(nullable="0+")


class FetchableTopicResponse(Struct):
    """One of ``FetchResponse.responses``."""

    topic: str = string("0-12", default="", ignorable=True)
    topic_id: TopicId = topic_id_("13+", default=ZERO_TOPIC_ID, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class NodeEndpoint(Struct):
    """One of ``FetchResponse.node_endpoints``."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    """Response of Fetch."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("7+", default=0, ignorable=True)
    session_id: int = int32("7+", default=0)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0, factory=list)
