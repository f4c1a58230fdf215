"""Records of ``__consumer_offsets`` for share groups.

::

    key                                              value
    10  ShareGroupMemberMetadata: group, member      rack, client, subscription
    11  ShareGroupMetadata: group                    group epoch, hash of its topics
    12  ShareGroupTargetAssignmentMetadata: group    assignment epoch and time
    13  ShareGroupTargetAssignmentMember: …          what the member is meant to have
    14  ShareGroupCurrentMemberAssignment: …         member epoch, what the member has
    15  ShareGroupStatePartitionMetadata: group      which share partitions have state
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.coordinator.group.modern.assignor import Assignment
from millstream.coordinator.group.share.member import ShareMember
from millstream.coordinator.group.share.state_topics import StateTopics, TopicPartitions, Topics
from millstream.coordinator.result import CoordinatorRecord
from millstream.protocol.messages import share_group_records as stored
from millstream.protocol.messages.share_group_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)

MEMBER_METADATA: Final = 10
METADATA: Final = 11
TARGET_METADATA: Final = 12
TARGET_MEMBER: Final = 13
CURRENT_ASSIGNMENT: Final = 14
STATE_PARTITIONS: Final = 15

_VERSION: Final = 0


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    return CoordinatorRecord(
        MEMBER_METADATA,
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        _VERSION,
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
        ),
    )


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of a group's epoch."""
    return CoordinatorRecord(
        METADATA,
        ShareGroupMetadataKey(group_id=group_id),
        _VERSION,
        ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record of the epoch of the target assignment."""
    return CoordinatorRecord(
        TARGET_METADATA,
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        _VERSION,
        ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record of what a member is meant to have."""
    return CoordinatorRecord(
        TARGET_MEMBER,
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        _VERSION,
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                stored.TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of what a member has."""
    return CoordinatorRecord(
        CURRENT_ASSIGNMENT,
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        _VERSION,
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state.value,
            assigned_partitions=[
                stored.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
                for topic_id, partitions in member.assigned.items()
            ],
        ),
    )


def state_record(group_id: str, topics: StateTopics) -> CoordinatorRecord:
    """Return the record of the share partitions that have state."""
    return CoordinatorRecord(
        STATE_PARTITIONS,
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        _VERSION,
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_stored(topics.initializing),
            initialized_topics=_stored(topics.initialized),
            deleting_topics=[
                stored.TopicInfo(topic_id=topic_id, topic_name=name)
                for topic_id, name in topics.deleting.items()
            ],
        ),
    )


def state_topics_of(value: ShareGroupStatePartitionMetadataValue) -> StateTopics:
    """Return the share partitions of a record."""
    return StateTopics(
        _read(value.initializing_topics),
        _read(value.initialized_topics),
        {each.topic_id: each.topic_name for each in value.deleting_topics},
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member."""
    return [
        CoordinatorRecord(
            CURRENT_ASSIGNMENT,
            ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ),
        CoordinatorRecord(
            TARGET_MEMBER,
            ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ),
        CoordinatorRecord(
            MEMBER_METADATA, ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
        ),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of a group; that of the group itself is the last."""
    members = [each for name in member_ids for each in member_tombstones(group_id, name)]
    return [
        *members,
        CoordinatorRecord(
            TARGET_METADATA, ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
        ),
        CoordinatorRecord(STATE_PARTITIONS, ShareGroupStatePartitionMetadataKey(group_id=group_id)),
        CoordinatorRecord(METADATA, ShareGroupMetadataKey(group_id=group_id)),
    ]


def _stored(topics: Topics) -> list[stored.TopicPartitionsInfo]:
    return [
        stored.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=each.name, partitions=sorted(each.partitions)
        )
        for topic_id, each in topics.items()
    ]


def _read(topics: Iterable[stored.TopicPartitionsInfo]) -> Topics:
    return {
        each.topic_id: TopicPartitions(each.topic_name, frozenset(each.partitions))
        for each in topics
    }
