"""One share group (KIP-932). Its state changes by the replay of records alone.

Kafka: ``ShareGroup``, and ``GroupMetadataManager.shareGroupStatePartitionMetadata``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.coordinator.group.group import GroupType
from millstream.coordinator.group.modern.assignor import NO_PARTITIONS, Assignment
from millstream.coordinator.group.modern.member import MemberState
from millstream.coordinator.group.modern.modern_group import ModernGroup, ModernGroupState
from millstream.coordinator.group.share.member import ShareMember
from millstream.coordinator.group.share.records import group_tombstones, state_topics_of
from millstream.coordinator.group.share.state_topics import StateTopics
from millstream.coordinator.result import CoordinatorRecord
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
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
from millstream.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from millstream.coordinator.group.offsets import CommittedOffset

PROTOCOL_TYPE: Final = "share"


class ShareGroup(ModernGroup[ShareMember]):
    """Its members, their assignment, and which share partitions have state."""

    kind = GroupType.SHARE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.assignment_timestamp_ms = 0
        """When the target assignment was made, wall time."""
        self.state_topics = StateTopics()

    @property
    def state(self) -> ModernGroupState:
        """A share group is either empty or stable: members never wait for one another."""
        return ModernGroupState.EMPTY if self.is_empty else ModernGroupState.STABLE

    def target_of(self, member_id: str) -> Assignment:
        """Return what a member is meant to have."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def has_unassigned_state(self) -> bool:
        """True if an initialized share partition of a subscribed topic belongs to nobody's target.

        Kafka: ``initializedAssignmentPending``.
        """
        if self.is_empty:
            return False
        assigned: dict[TopicId, set[int]] = {}
        for target in self.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            self.is_subscribed_to(each.name) and assigned.get(topic_id, set()) != each.partitions
            for topic_id, each in self.state_topics.initialized.items()
        )

    # The Group protocol, for offsets and administration

    def validate_commit(self, request: OffsetCommitRequest, version: int) -> str | None:
        """A share group has no committed offsets: GROUP_ID_NOT_FOUND."""
        raise self._no_consumer_group()

    def refuses_commit(
        self, member_id: str, epoch: int, topic_id: TopicId, partition: int
    ) -> ErrorCode | None:
        """See :meth:`Group.refuses_commit`; no commit comes so far."""
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_transactional_commit(self, request: TxnOffsetCommitRequest) -> None:
        """A share group has no committed offsets: GROUP_ID_NOT_FOUND."""
        raise self._no_consumer_group()

    def validate_fetch(self, request: OffsetFetchRequestGroup) -> None:
        """A share group has no committed offsets: GROUP_ID_NOT_FOUND."""
        raise self._no_consumer_group()

    def validate_delete_offsets(self) -> None:
        """A share group has no committed offsets: GROUP_ID_NOT_FOUND."""
        raise self._no_consumer_group()

    def validate_delete(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def retention_counts_from(self) -> Callable[[CommittedOffset], int] | None:
        """None: a share group stays until it is deleted."""
        return None

    def listed(self) -> ListedGroup:
        """Return the group for ListGroups."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=PROTOCOL_TYPE,
            group_state=self.state.value,
            group_type=self.kind.value,
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the tombstones of the group."""
        return group_tombstones(self.group_id, self.members)

    def _no_consumer_group(self) -> KafkaError:
        return KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group."
        )

    # Replay

    def apply(self, record: CoordinatorRecord) -> None:
        """Apply one of the group's records; the tombstone of the group itself is its owner's."""
        match record.key, record.value:
            case ShareGroupMetadataKey(), ShareGroupMetadataValue() as value:
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupMemberMetadataKey(member_id=member_id), value:
                self._apply_member(member_id, value)
            case ShareGroupTargetAssignmentMetadataKey(), value:
                self.assignment_epoch = self.assignment_timestamp_ms = 0
                if isinstance(value, ShareGroupTargetAssignmentMetadataValue):
                    self.assignment_epoch = value.assignment_epoch
                    self.assignment_timestamp_ms = value.assignment_timestamp
            case ShareGroupTargetAssignmentMemberKey(member_id=member_id), value:
                self.put_target(member_id, _target(value))
            case ShareGroupCurrentMemberAssignmentKey(member_id=member_id), value:
                self._apply_current(member_id, value)
            case ShareGroupStatePartitionMetadataKey(), value:
                self.state_topics = StateTopics()
                if isinstance(value, ShareGroupStatePartitionMetadataValue):
                    self.state_topics = state_topics_of(value)
            case _:
                raise AssertionError(f"not a record of a share group: {record}")

    def _apply_member(self, member_id: str, value: object) -> None:
        if not isinstance(value, ShareGroupMemberMetadataValue):
            self.remove_member(member_id)
            return
        present = self.members.get(member_id) or ShareMember(member_id=member_id)
        self.put_member(
            replace(
                present,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                subscribed_topic_names=frozenset(value.subscribed_topic_names),
            )
        )

    def _apply_current(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if isinstance(value, ShareGroupCurrentMemberAssignmentValue):
            self.put_member(
                replace(
                    member or ShareMember(member_id=member_id),
                    member_epoch=value.member_epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    state=MemberState(value.state),
                    assigned={
                        each.topic_id: frozenset(each.partitions)
                        for each in value.assigned_partitions
                    },
                )
            )
        elif member is not None:
            self.put_member(
                replace(
                    member,
                    member_epoch=-1,
                    previous_member_epoch=-1,
                    state=MemberState.STABLE,
                    assigned=NO_PARTITIONS,
                )
            )


def _target(value: object) -> Assignment | None:
    if not isinstance(value, ShareGroupTargetAssignmentMemberValue):
        return None
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
