"""ElectLeaders: API key 43, versions 0 to 2."""

from __future__ import annotations

from millstream.protocol.fields import array, int8, int16, int32, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class TopicPartitions(Struct):
    """One of ``ElectLeadersRequest.topic_partitions``."""

    topic: str = string()
    partitions: list[int] = array(int32())


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    """Request of ElectLeaders."""

    election_type: int = int8("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    """One of ``ReplicaElectionResult.partition_result``."""

    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Struct):
    """One of ``ElectLeadersResponse.replica_election_results``."""

    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    """Response of ElectLeaders."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
