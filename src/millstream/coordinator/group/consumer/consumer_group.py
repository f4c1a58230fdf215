"""A consumer group: its members, who has which partition, its expressions (a ``Group``).

All of it changes by :meth:`ConsumerGroup.apply`, which takes the group's records one by one: at a
load, and by an operation that plans on a copy (``draft``). Its invariants, besides those of
``ModernGroup``:

* ``owners`` has each partition in ``assigned`` or ``pending_revocation`` of a member, and that
  member's id;
* ``static_members`` maps the instance id of each static member to its member id;
* the counters count members: by preferred assignor, by expression, by classic protocol.

Kafka: ``ConsumerGroup``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.coordinator.group.consumer.member import ConsumerMember, contains
from millstream.coordinator.group.consumer.records import (
    epochs_from_record,
    group_tombstones,
    member_from_record,
)
from millstream.coordinator.group.group import GroupType
from millstream.coordinator.group.modern.assignor import NO_PARTITIONS, Assignment
from millstream.coordinator.group.modern.member import MemberState
from millstream.coordinator.group.modern.modern_group import ModernGroup
from millstream.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from millstream.coordinator.result import CoordinatorRecord
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from millstream.protocol.messages.list_groups import ListedGroup
from millstream.protocol.messages.offset_commit import OffsetCommitRequest
from millstream.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from millstream.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

if TYPE_CHECKING:
    from millstream.coordinator.group.offsets import CommittedOffset

_FIRST_COMMIT_VERSION: Final = 9
"""The first version of OffsetCommit with member epochs."""


@dataclass(frozen=True, slots=True)
class ResolvedExpression:
    """The topics that an expression stood for at a time (wall, in milliseconds)."""

    topics: frozenset[str]
    timestamp_ms: int


class ConsumerGroup(ModernGroup[ConsumerMember]):
    """One group of the consumer protocol."""

    kind = GroupType.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.assignment_timestamp_ms = 0
        """When the target assignment was made, wall time; 0 if that is unknown."""
        self.static_members: dict[str, str] = {}
        self.owners: dict[tuple[TopicId, int], str] = {}
        self.server_assignors: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocols: Counter[str] = Counter()
        self.expression_counts: Counter[str] = Counter()
        self.expressions: dict[str, ResolvedExpression] = {}
        self.has_partition_metadata = False
        """True while the log has a record that only versions before Kafka 4.1 write."""
        self.expressions_are_stale = True
        """True if topics were created since the expressions were resolved. In memory alone."""
        self.is_resolving = False
        """True while a worker resolves the group's expressions. In memory alone."""

    def draft(self) -> ConsumerGroup:
        """Return a copy to plan on. Members and targets are immutable, so they are shared."""
        draft = ConsumerGroup(self.group_id)
        for name, value in vars(self).items():
            setattr(draft, name, value.copy() if isinstance(value, dict) else value)
        return draft

    # Reading

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """Return the static member with an instance id, or None."""
        member_id = self.static_members.get(instance_id or "")
        return None if member_id is None else self.members.get(member_id)

    def owner_of(self, topic_id: TopicId, partition: int) -> str | None:
        """Return the id of the member that has a partition, or has yet to give it back."""
        return self.owners.get((topic_id, partition))

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        """Return the topics that a member subscribes to by name or by its expression."""
        resolved = self.expressions.get(member.regex)
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def subscribed_names(self) -> set[str]:
        """Return every topic that a member subscribes to."""
        return set(self.topic_counts).union(*(each.topics for each in self.expressions.values()))

    def is_subscribed_to(self, topic: str) -> bool:
        """See :meth:`Group.is_subscribed_to`."""
        return topic in self.topic_counts or any(
            topic in each.topics for each in self.expressions.values()
        )

    def target_of(self, member_id: str) -> Assignment:
        """Return what a member is meant to have."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def preferred_assignor(self, default: str) -> str:
        """Return the assignor that most members prefer."""
        counts = self.server_assignors
        return max(counts, key=lambda name: counts[name]) if counts else default

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """True if a classic member with these protocols may join: one of them is supported by all
        classic members.
        """
        if protocol_type != CONSUMER_PROTOCOL_TYPE or not protocols:
            return False
        count = self.classic_count
        return any(self.classic_protocols[name] == count for name in protocols)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """True if another member has a partition that this one is meant to have."""
        return any(
            self.owner_of(topic_id, partition) not in (None, member.member_id)
            for topic_id, partitions in self.target_of(member.member_id).items()
            for partition in partitions
            if not contains(member.assigned, topic_id, partition)
        )

    # The Group protocol, for offsets and administration

    def validate_commit(self, request: OffsetCommitRequest, version: int) -> str | None:
        """See :meth:`Group.validate_commit`. A commit renews no session: heartbeats do.

        A member may commit with an older epoch; :meth:`refuses_commit` then decides for each
        partition (KIP-1251).
        """
        epoch = request.generation_id_or_member_epoch
        if epoch < 0 and self.is_empty:
            return None  # an administrator, or a consumer that assigns its partitions itself
        member = self.require_member(request.member_id)
        if not member.is_classic and version < _FIRST_COMMIT_VERSION:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group "
                "protocol",
            )
        _refuse_newer(member, epoch)
        return None

    def validate_transactional_commit(self, request: TxnOffsetCommitRequest) -> None:
        """See :meth:`Group.validate_transactional_commit`."""
        epoch, member_id = request.generation_id, request.member_id
        if epoch < 0 and (self.is_empty or (not member_id and request.group_instance_id is None)):
            return
        try:
            _refuse_newer(self.require_member(member_id), epoch)
        except KafkaError as error:
            if error.error is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error

    def refuses_commit(
        self, member_id: str, epoch: int, topic_id: TopicId, partition: int
    ) -> ErrorCode | None:
        """See :meth:`Group.refuses_commit`: a member with an older epoch may commit what it has had
        since then or longer.
        """
        member = self.members.get(member_id)
        if member is None or epoch == member.member_epoch:
            return None
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(partition)
        return _stale(member) if since is None or epoch < since else None

    def validate_fetch(self, request: OffsetFetchRequestGroup) -> None:
        """See :meth:`Group.validate_fetch`."""
        if request.member_id is None and request.member_epoch < 0:
            return
        member = self.require_member(request.member_id or "")
        if request.member_epoch != member.member_epoch:
            raise KafkaError(
                _stale(member),
                f"The received member epoch {request.member_epoch} does not match the expected "
                f"member epoch {member.member_epoch}.",
            )

    def validate_delete_offsets(self) -> None:
        """See :meth:`Group.validate_delete_offsets`: subscriptions are known."""

    def validate_delete(self) -> None:
        """See :meth:`Group.validate_delete`."""
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def retention_counts_from(self) -> Callable[[CommittedOffset], int]:
        """See :meth:`Group.retention_counts_from`."""
        return lambda committed: committed.commit_timestamp_ms

    def listed(self) -> ListedGroup:
        """See :meth:`Group.listed`."""
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=self.state.value,
            group_type=self.kind.value,
        )

    def tombstones(self) -> list[CoordinatorRecord]:
        """See :meth:`Group.tombstones`."""
        return group_tombstones(self.group_id, self.members, self.expressions)

    # Replay

    def apply(self, record: CoordinatorRecord) -> None:
        """Apply one of the group's records; the tombstone of the group itself is its owner's."""
        match record.key, record.value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue() as value:
                self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ConsumerGroupPartitionMetadataKey(), value:
                self.has_partition_metadata = isinstance(value, ConsumerGroupPartitionMetadataValue)
            case ConsumerGroupMemberMetadataKey(member_id=member_id), value:
                self._apply_member(member_id, value)
            case ConsumerGroupTargetAssignmentMetadataKey(), value:
                self._apply_target_epoch(value)
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id), value:
                self._apply_target(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), value:
                self._apply_current(member_id, value)
            case ConsumerGroupRegularExpressionKey(regular_expression=expression), value:
                self._apply_expression(expression, value)
            case _:
                raise AssertionError(f"not a record of a consumer group: {record}")

    def _apply_member(self, member_id: str, value: object) -> None:
        if isinstance(value, ConsumerGroupMemberMetadataValue):
            present = self.members.get(member_id) or ConsumerMember(member_id=member_id)
            self.put_member(member_from_record(present, value))
        else:
            self.remove_member(member_id)

    def _apply_target_epoch(self, value: object) -> None:
        self.assignment_epoch = self.assignment_timestamp_ms = 0
        if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
            self.assignment_epoch = value.assignment_epoch
            self.assignment_timestamp_ms = value.assignment_timestamp

    def _apply_target(self, member_id: str, value: object) -> None:
        target = None
        if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
            target = {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
        self.put_target(member_id, target)

    def _apply_current(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            epoch = value.member_epoch
            self.put_member(
                replace(
                    member or ConsumerMember(member_id=member_id),
                    member_epoch=epoch,
                    previous_member_epoch=value.previous_member_epoch,
                    state=MemberState(value.state),
                    assigned=epochs_from_record(value.assigned_partitions, epoch),
                    pending_revocation=epochs_from_record(
                        value.partitions_pending_revocation, epoch
                    ),
                )
            )
        elif member is not None:
            self.put_member(
                replace(
                    member,
                    member_epoch=-1,
                    previous_member_epoch=-1,
                    state=MemberState.STABLE,
                    assigned={},
                    pending_revocation={},
                )
            )

    def _apply_expression(self, expression: str, value: object) -> None:
        if isinstance(value, ConsumerGroupRegularExpressionValue):
            self.expressions[expression] = ResolvedExpression(
                frozenset(value.topics), value.timestamp
            )
        else:
            self.expressions.pop(expression, None)

    def put_member(self, member: ConsumerMember) -> None:
        """Add a member or replace the one with its id."""
        self._account(self.members.get(member.member_id), -1)
        super().put_member(member)
        self._account(member, 1)

    def remove_member(self, member_id: str) -> ConsumerMember | None:
        """Remove a member and return it, or None."""
        member = super().remove_member(member_id)
        self._account(member, -1)
        return member

    def _account(self, member: ConsumerMember | None, by: int) -> None:
        if member is None:
            return
        if member.server_assignor:
            _add(self.server_assignors, member.server_assignor, by)
        if member.regex:
            _add(self.expression_counts, member.regex, by)
        if member.classic is not None:
            self.classic_count += by
            for name, _ in member.classic.protocols:
                _add(self.classic_protocols, name, by)
        self._account_instance(member, by)
        for topic_id, partition in _partitions(member):
            place = topic_id, partition
            if by > 0:
                self.owners[place] = member.member_id
            elif self.owners.get(place) == member.member_id:
                del self.owners[place]

    def _account_instance(self, member: ConsumerMember, by: int) -> None:
        instance_id = member.instance_id
        if instance_id is None:
            return
        if by > 0:
            self.static_members[instance_id] = member.member_id
        elif self.static_members.get(instance_id) == member.member_id:
            del self.static_members[instance_id]


def _add(counts: Counter[str], name: str, by: int) -> None:
    counts[name] += by
    if counts[name] <= 0:
        del counts[name]


def _partitions(member: ConsumerMember) -> Iterable[tuple[TopicId, int]]:
    for epochs in (member.assigned, member.pending_revocation):
        for topic_id, partitions in epochs.items():
            for partition in partitions:
                yield topic_id, partition


def _refuse_newer(member: ConsumerMember, epoch: int) -> None:
    """Raise for a commit with an epoch that the member has not reached."""
    if epoch > member.member_epoch:
        kind = "generation id" if member.is_classic else "member epoch"
        raise KafkaError(
            _stale(member),
            f"Received {kind} {epoch} is newer than current member epoch {member.member_epoch}.",
        )


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
