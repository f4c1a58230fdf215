"""ConsumerGroupHeartbeat: API key 68, versions 0 to 1."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, string, struct, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class TopicPartitions(Struct):
    """One of ``ConsumerGroupHeartbeatRequest.topic_partitions`` and others."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    """Request of ConsumerGroupHeartbeat."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string(), nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="0+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(
        TopicPartitions, nullable="0+", default=None
    )


class Assignment(Struct):
    """The value of ``ConsumerGroupHeartbeatResponse.assignment``."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    """Response of ConsumerGroupHeartbeat."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
