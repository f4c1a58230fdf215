"""ConsumerGroupDescribe (Kafka: ``ConsumerGroup.asDescribedGroup``)."""

from __future__ import annotations

from enum import IntEnum

from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.member import ConsumerMember, partitions_of
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.modern import assignor
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.model.errors import ErrorCode
from millstream.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)


class MemberType(IntEnum):
    """The protocol of a member, in version 1."""

    CLASSIC = 0
    CONSUMER = 1


def describe_consumer_group(
    groups: Groups, group_id: str, topics: TopicsImage, *, default_assignor: str
) -> DescribedGroup:
    """Return a consumer group's epochs and members; GROUP_ID_NOT_FOUND for any other group."""
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        return refused(group_id, ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")
    return DescribedGroup(
        error_code=ErrorCode.NONE.code,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def refused(group_id: str, error: ErrorCode, message: str | None) -> DescribedGroup:
    """Return the error for one group."""
    return DescribedGroup(
        error_code=error.code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: TopicsImage) -> Member:
    kind = MemberType.CLASSIC if member.is_classic else MemberType.CONSUMER
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(partitions_of(member.assigned), topics),
        target_assignment=_assignment(group.target_of(member.member_id), topics),
        member_type=kind,
    )


def _assignment(partitions: assignor.Assignment, topics: TopicsImage) -> Assignment:
    """Return partitions with the names of their topics, without those of deleted topics."""
    found = []
    for topic_id, indexes in partitions.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            found.append(
                TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(indexes)
                )
            )
    return Assignment(topic_partitions=found)
