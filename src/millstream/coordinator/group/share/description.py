"""ShareGroupDescribe. Kafka: ``ShareGroup.asDescribedGroup``."""

from __future__ import annotations

from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.coordinator.group.share.member import ShareMember
from millstream.coordinator.group.share.share_group import ShareGroup
from millstream.coordinator.group.share.simple_assignor import SimpleAssignor
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)


def describe_share_group(groups: Groups, group_id: str, topics: TopicsImage) -> DescribedGroup:
    """Return a share group's epochs, members and assignments; GROUP_ID_NOT_FOUND without one."""
    group = groups.get(group_id)
    if not isinstance(group, ShareGroup):
        text = "Share group {} not found." if group is None else "Group {} is not a share group."
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text.format(group_id))
    return DescribedGroup(
        error_code=ErrorCode.NONE.code,
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SimpleAssignor.name,
        members=[_member(member, topics) for member in group.members.values()],
    )


def _member(member: ShareMember, topics: TopicsImage) -> Member:
    assigned = []
    for topic_id, partitions in member.assigned.items():
        topic = topics.topic_by_id(topic_id)
        if topic is not None:
            assigned.append(
                TopicPartitions(
                    topic_id=topic_id, topic_name=topic.name, partitions=sorted(partitions)
                )
            )
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(topic_partitions=assigned),
    )
