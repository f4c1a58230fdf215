"""ConsumerGroupDescribe: API key 69, versions 0 to 1."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.protocol.fields import array, bool_, int8, int16, int32, string, struct, topic_id_
from millstream.protocol.message import Request, Response
from millstream.protocol.schema import Struct


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    """Request of ConsumerGroupDescribe."""

    group_ids: list[str] = array(string())
    include_authorized_operations: bool = bool_()


class TopicPartitions(Struct):
    """One of ``Assignment.topic_partitions``."""

    topic_id: TopicId = topic_id_()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class Assignment(Struct):
    """The value of ``Member.assignment`` and of ``Member.target_assignment``."""

    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    """One of ``DescribedGroup.members``."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    subscribed_topic_regex: str | None = string(nullable="0+", default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    """One of ``ConsumerGroupDescribeResponse.groups``."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    """Response of ConsumerGroupDescribe."""

    throttle_time_ms: int = int32(default=0)
    groups: list[DescribedGroup] = array(DescribedGroup)
