"""OffsetFetch: API key 9, versions 1 to 10."""

from __future__ import annotations

from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.fields import array, bool_, int16, int32, int64, string, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class OffsetFetchRequestTopic(Struct):
    """One of ``OffsetFetchRequest.topics``."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class OffsetFetchRequestTopics(Struct):
    """One of ``OffsetFetchRequestGroup.topics``."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: TopicId = topic_id_("10+", default=ZERO_TOPIC_ID, ignorable=True)
    partition_indexes: list[int] = array(int32())


class OffsetFetchRequestGroup(Struct):
    """One of ``OffsetFetchRequest.groups``."""

    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, nullable="0+")


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    """Request of OffsetFetch."""

    group_id: str = string("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7", factory=list
    )
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+", factory=list)
    require_stable: bool = bool_("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    """One of ``OffsetFetchResponseTopic.partitions``."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """One of ``OffsetFetchResponse.topics``."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """One of ``OffsetFetchResponseTopics.partitions``."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """One of ``OffsetFetchResponseGroup.topics``."""

    name: str = string("8-9", default="", ignorable=True)
    topic_id: TopicId = topic_id_("10+", default=ZERO_TOPIC_ID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """One of ``OffsetFetchResponse.groups``."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16(default=0)


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    """Response of OffsetFetch."""

    throttle_time_ms: int = int32("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7", factory=list)
    error_code: int = int16("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+", factory=list)
