"""ShareGroupHeartbeat: API key 76, versions 1."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, int16, int32, string, struct, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    """Request of ShareGroupHeartbeat."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string(), nullable="0+", default=None)


class TopicPartitions(Struct):
    """One of ``Assignment.topic_partitions``."""

    topic_id: TopicId = topic_id_()
    partitions: list[int] = array(int32())


class Assignment(Struct):
    """The value of ``ShareGroupHeartbeatResponse.assignment``."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    """Response of ShareGroupHeartbeat."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
