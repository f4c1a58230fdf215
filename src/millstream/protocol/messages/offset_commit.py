"""OffsetCommit: API key 8, versions 2 to 10."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class OffsetCommitRequestPartition(Struct):
    """One of ``OffsetCommitRequestTopic.partitions``."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable="0+")


class OffsetCommitRequestTopic(Struct):
    """One of ``OffsetCommitRequest.topics``."""

    name: str = string("0-9", default="", ignorable=True)
    topic_id: TopicId = topic_id_("10+", default=ZERO_TOPIC_ID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    """Request of OffsetCommit."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("7+", nullable="0+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponsePartition(Struct):
    """One of ``OffsetCommitResponseTopic.partitions``."""

    partition_index: int = int32()
    error_code: int = int16()


class OffsetCommitResponseTopic(Struct):
    """One of ``OffsetCommitResponse.topics``."""

    name: str = string("0-9", default="", ignorable=True)
    topic_id: TopicId = topic_id_("10+", default=ZERO_TOPIC_ID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    """Response of OffsetCommit."""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
