"""One change of a consumer group while it is planned.

A draft plans on a copy of the group, made when the first record comes: every record is applied to
the copy at once, so each step sees the one before. An error anywhere leaves the group as it was.
``commit`` puts the copy in its place and hands the records over as state that is already changed
(``Result.settled``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from millstream.coordinator.group.consumer import records as make
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.member import ConsumerMember
from millstream.coordinator.group.consumer.reconciliation import Owned, Target, reconcile
from millstream.coordinator.group.groups import Groups
from millstream.coordinator.group.modern.assignor import (
    AllPartitions,
    AssignorError,
    PartitionAssignor,
)
from millstream.coordinator.group.modern.member import is_reconciled_to
from millstream.coordinator.group.modern.modern_group import next_epoch
from millstream.coordinator.group.modern.target_assignment import TopicIds, compute_target
from millstream.coordinator.group.modern.topics import TopicsImage, metadata_hash
from millstream.coordinator.result import CoordinatorRecord, Instant, R, Result
from millstream.model.errors import ErrorCode, KafkaError


class Draft:
    """See the module. ``is_new`` for a group that is not among the coordinator's groups yet."""

    def __init__(
        self, group: ConsumerGroup, topics: TopicsImage, now: Instant, *, is_new: bool = False
    ) -> None:
        self.now = now
        self.records: list[CoordinatorRecord] = []
        self._topics = topics
        self._group = group
        self._is_copy = is_new

    @property
    def group(self) -> ConsumerGroup:
        """The group with all changes so far."""
        return self._group

    def add(self, *records: CoordinatorRecord) -> None:
        """Add records of the group and apply them to the copy."""
        if not self._is_copy:
            self._group = self._group.draft()
            self._is_copy = True
        for record in records:
            self._group.apply(record)
        self.records += records

    def add_foreign(self, *records: CoordinatorRecord) -> None:
        """Add records that belong to another kind of group with this id."""
        self.records += records

    def commit(self, groups: Groups, result: Result[R], *, largest_bytes: int | None) -> None:
        """Put the copy in place of the group.

        UNKNOWN_SERVER_ERROR, before anything is changed, if the records are larger together than
        ``largest_bytes``.
        """
        if not self._is_copy and not self.records:
            return
        if largest_bytes is not None:
            size = sum(record.size for record in self.records)
            if size > largest_bytes:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the change of group {self._group.group_id} takes {size} bytes, "
                    f"and a batch may have {largest_bytes}",
                )
        groups.put(self._group)
        for record in self.records:
            result.settled(record)

    # Steps

    def put_metadata(self, member: ConsumerMember, updated: ConsumerMember) -> bool:
        """Record a member's metadata if they are new or changed; return True if the topics that it
        names have changed.
        """
        is_present = updated.member_id in self.group.members
        if not is_present or not updated.same_metadata(self.group.members[updated.member_id]):
            self.add(make.member_record(self.group.group_id, updated))
        return updated.subscribed_topic_names != member.subscribed_topic_names

    def refresh(self, *, bump: bool) -> None:
        """Bump the group epoch if the topics' metadata have changed, or if ``bump``."""
        group = self.group
        names = group.subscribed_names()
        found = metadata_hash(names, self._topics)
        epoch = next_epoch(group.group_epoch) if names else group.group_epoch + 1
        if bump or found != group.metadata_hash:
            self.add(make.epoch_record(group.group_id, epoch, found))
        if self.group.has_partition_metadata:
            self.add(make.partition_metadata_tombstone(group.group_id))
        self.group.needs_refresh = False

    def assignment_delay_ms(self, interval_ms: int) -> int | None:
        """Return in how many milliseconds a new target assignment may be made; None if the one
        there is belongs to the group epoch.
        """
        group = self.group
        if group.assignment_epoch >= group.group_epoch:
            return None
        passed_ms = self.now.wall_ms - group.assignment_timestamp_ms
        return interval_ms - passed_ms if 0 <= passed_ms < interval_ms else 0

    def update_target(
        self, assignors: Mapping[str, PartitionAssignor], *, interval_ms: int
    ) -> None:
        """Make a new target assignment if the group epoch is newer than the one there is, and the
        last one is older than the interval (KIP-1263).

        UNKNOWN_SERVER_ERROR if the assignor fails.
        """
        if self.assignment_delay_ms(interval_ms) != 0:
            return
        group = self.group
        default = next(iter(assignors))
        assignor = assignors.get(group.preferred_assignor(default)) or assignors[default]
        try:
            target = compute_target(
                assignor,
                group.members.values(),
                names_of=group.names_of,
                target_of=lambda member: group.targets.get(member.member_id),
                topics=self._topics,
                assignable=AllPartitions(self._topics),
            )
        except AssignorError as error:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Failed to compute a new target assignment for epoch {group.group_epoch}: {error}",
            ) from error
        self.add(
            *(make.target_record(group.group_id, each, target.of(each)) for each in target.changed),
            make.target_epoch_record(group.group_id, group.group_epoch, self.now.wall_ms),
        )

    def reconcile(
        self, member_id: str, owned: Owned | None, *, subscription_changed: bool
    ) -> ConsumerMember:
        """Bring a member towards its target by one step; return it as it is then."""
        group = self.group
        member = group.members[member_id]
        if not subscription_changed and is_reconciled_to(member, group.assignment_epoch):
            return member
        updated = reconcile(
            member,
            Target(group.assignment_epoch, group.target_of(member_id)),
            subscribed=TopicIds(self._topics).of(group.names_of(member)),
            owned=owned,
            owner_of=group.owner_of,
            subscription_changed=subscription_changed,
        )
        if updated is not member:
            self.add(make.current_record(group.group_id, updated))
        return updated

    def replace_static(self, old: ConsumerMember, new_id: str) -> ConsumerMember:
        """Let a new process take the place of a static member, with its assignment."""
        group_id, target = self.group.group_id, self.group.target_of(old.member_id)
        new = replace(old, member_id=new_id, member_epoch=0, previous_member_epoch=0)
        self.add(
            *make.member_tombstones(group_id, old.member_id),
            make.member_record(group_id, new),
            make.target_record(group_id, new_id, target),
            make.current_record(group_id, new),
        )
        return new

    def remove(self, *member_ids: str) -> None:
        """Remove members, the expressions that only they used, and bump the group epoch."""
        group_id = self.group.group_id
        for member_id in member_ids:
            self.add(*make.member_tombstones(group_id, member_id))
        self.forget_expressions()
        self.refresh(bump=True)

    def forget_expressions(self) -> None:
        """Remove the expressions that no member uses any more."""
        group = self.group
        unused = [each for each in group.expressions if each not in group.expression_counts]
        if unused:
            self.add(*(make.expression_tombstone(group.group_id, each) for each in unused))
