"""The records of consumer groups, as Kafka 4.3 writes them.

::

    key                                    value
    3   group                              group epoch, hash of the topics' metadata
    4   group                              (written before Kafka 4.1; a tombstone removes it)
    5   group, member                      identity and subscription of a member
    6   group                              epoch and time of the target assignment
    7   group, member                      the target of a member
    8   group, member                      epochs, state and partitions of a member
    16  group, regular expression          the topics that an expression stands for

Kafka: ``GroupCoordinatorRecordHelpers``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.coordinator.group.consumer.member import (
    ClassicMembership,
    ConsumerMember,
    PartitionEpochs,
)
from millstream.coordinator.group.modern.assignor import Assignment
from millstream.coordinator.result import CoordinatorRecord
from millstream.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

METADATA: Final = 3
PARTITION_METADATA: Final = 4
MEMBER_METADATA: Final = 5
TARGET_METADATA: Final = 6
TARGET_MEMBER: Final = 7
CURRENT_ASSIGNMENT: Final = 8
REGULAR_EXPRESSION: Final = 16

UNKNOWN_VERSION: Final = 0
"""The version of the cluster's metadata in the record of an expression. Kafka's counts its metadata
log; 0 makes it resolve the expression again.
"""


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """Return the record of a group's epoch."""
    key = ConsumerGroupMetadataKey(group_id=group_id)
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(METADATA, key, 0, value)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone of a record that only older versions write."""
    return CoordinatorRecord(
        PARTITION_METADATA, ConsumerGroupPartitionMetadataKey(group_id=group_id)
    )


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a member's identity and subscription."""
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None if classic is None else _classic_metadata(classic),
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(MEMBER_METADATA, key, 0, value)


def _classic_metadata(classic: ClassicMembership) -> ClassicMemberMetadata:
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols
        ],
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """Return the record that says for which group epoch the target assignment was made."""
    key = ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return CoordinatorRecord(TARGET_METADATA, key, 0, value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record of a member's target."""
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in target.items()
        ]
    )
    return CoordinatorRecord(TARGET_MEMBER, key, 0, value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of what a member has."""
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=int(member.state),
        assigned_partitions=_topic_partitions(member.assigned),
        partitions_pending_revocation=_topic_partitions(member.pending_revocation),
    )
    return CoordinatorRecord(CURRENT_ASSIGNMENT, key, 0, value)


def _topic_partitions(epochs: PartitionEpochs) -> list[TopicPartitions]:
    found = []
    for topic_id, partitions in epochs.items():
        ordered = sorted(partitions)
        found.append(
            TopicPartitions(
                topic_id=topic_id,
                partitions=ordered,
                assignment_epochs=[partitions[each] for each in ordered],
            )
        )
    return found


def expression_record(
    group_id: str, expression: str, topics: Iterable[str], timestamp_ms: int
) -> CoordinatorRecord:
    """Return the record of the topics that an expression stands for."""
    key = ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression)
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(topics), version=UNKNOWN_VERSION, timestamp=timestamp_ms
    )
    return CoordinatorRecord(REGULAR_EXPRESSION, key, 0, value)


def expression_tombstone(group_id: str, expression: str) -> CoordinatorRecord:
    """Return the tombstone of an expression that no member uses any more."""
    return CoordinatorRecord(
        REGULAR_EXPRESSION,
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones of a member, in the order in which Kafka writes them."""
    return [
        CoordinatorRecord(
            CURRENT_ASSIGNMENT,
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ),
        CoordinatorRecord(
            TARGET_MEMBER,
            ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ),
        CoordinatorRecord(
            MEMBER_METADATA, ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
        ),
    ]


def group_tombstones(
    group_id: str, members: Mapping[str, object], expressions: Iterable[str]
) -> list[CoordinatorRecord]:
    """Return the tombstones of a group, its members and its expressions."""
    by_member = [member_tombstones(group_id, member_id) for member_id in members]
    return [
        *(records[0] for records in by_member),
        *(records[1] for records in by_member),
        CoordinatorRecord(
            TARGET_METADATA, ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
        ),
        *(records[2] for records in by_member),
        *(expression_tombstone(group_id, each) for each in expressions),
        CoordinatorRecord(PARTITION_METADATA, ConsumerGroupPartitionMetadataKey(group_id=group_id)),
        CoordinatorRecord(METADATA, ConsumerGroupMetadataKey(group_id=group_id)),
    ]


def member_from_record(
    member: ConsumerMember, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMember:
    """Return the member with the identity and subscription of a record."""
    classic = value.classic_member_metadata
    return ConsumerMember(
        member_id=member.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMembership(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
    )


def epochs_from_record(stored: list[TopicPartitions], member_epoch: int) -> PartitionEpochs:
    """Return the partitions of a record. Versions before Kafka 4.3 did not write their epochs: the
    member's epoch stands in, which is never too small.
    """
    found: dict[bytes, dict[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found  # type: ignore[return-value]
