"""DescribeQuorum: API key 55, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import NO_UUID, array, int16, int32, int64, string, uint16, uuid
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class PartitionData(Struct):
    """One of ``TopicData.partitions``."""

    partition_index: int = int32()


class TopicData(Struct):
    """One of ``DescribeQuorumRequest.topics``."""

    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    """Request of DescribeQuorum."""

    topics: list[TopicData] = array(TopicData)


class ReplicaState(Struct):
    """One of ``ResponsePartitionData.current_voters`` and others."""

    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+", default=NO_UUID)
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class ResponsePartitionData(Struct):
    """One of ``ResponseTopicData.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="0+", default="", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class ResponseTopicData(Struct):
    """One of ``DescribeQuorumResponse.topics``."""

    topic_name: str = string()
    partitions: list[ResponsePartitionData] = array(ResponsePartitionData)


class Listener(Struct):
    """One of ``Node.listeners``."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class Node(Struct):
    """One of ``DescribeQuorumResponse.nodes``."""

    node_id: int = int32()
    listeners: list[Listener] = array(Listener)


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    """Response of DescribeQuorum."""

    error_code: int = int16()
    error_message: str | None = string("2+", nullable="0+", default="", ignorable=True)
    topics: list[ResponseTopicData] = array(ResponseTopicData)
    nodes: list[Node] = array(Node, "2+", factory=list)
