"""OffsetForLeaderEpoch: API key 23, versions 2 to 4."""

from __future__ import annotations

from millstream.protocol.fields import array, int16, int32, int64, string
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class OffsetForLeaderPartition(Struct):
    """One of ``OffsetForLeaderTopic.partitions``."""

    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    """One of ``OffsetForLeaderEpochRequest.topics``."""

    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    """Request of OffsetForLeaderEpoch."""

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    """One of ``OffsetForLeaderTopicResult.partitions``."""

    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """One of ``OffsetForLeaderEpochResponse.topics``."""

    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    """Response of OffsetForLeaderEpoch."""

    throttle_time_ms: int = int32(default=0)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
