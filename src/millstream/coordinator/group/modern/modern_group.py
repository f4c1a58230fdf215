"""The state that every modern group has: epochs, members, subscriptions, the target assignment.

Kafka: ``ModernGroup``. It changes by the replay of records alone, through the methods here; its
invariants:

* ``assignment_epoch`` is never above ``group_epoch``;
* ``topic_counts`` counts, per topic, the members that name it.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final, Generic, TypeVar

from millstream.coordinator.group.modern.assignor import Assignment
from millstream.coordinator.group.modern.member import ModernMember, is_reconciled_to
from millstream.model.errors import ErrorCode, KafkaError

M = TypeVar("M", bound=ModernMember)


class ModernGroupState(Enum):
    """The value is the name in ListGroups and in the describe responses."""

    EMPTY = "Empty"
    """It has no members."""
    ASSIGNING = "Assigning"
    """Its target assignment is older than its epoch."""
    RECONCILING = "Reconciling"
    """Some member does not have yet what it is meant to have."""
    STABLE = "Stable"
    """Every member has what it is meant to have."""


def next_epoch(group_epoch: int) -> int:
    """Return the group epoch after ``group_epoch``. That of a new group whose first member
    subscribes to topics is 2, as in Kafka 4.3: the group itself is the first change.
    """
    return group_epoch + 1


class ModernGroup(Generic[M]):
    """One group's members and epochs."""

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.group_epoch = 1
        """Grows whenever the target assignment has to be made anew."""
        self.metadata_hash = 0
        """Of the topics, when the group epoch was bumped last (``topics.metadata_hash``)."""
        self.assignment_epoch = 1
        """The group epoch for which the target assignment was made."""
        self.members: dict[str, M] = {}
        self.targets: dict[str, Assignment] = {}
        """The target of each member by member id."""
        self.topic_counts: Counter[str] = Counter()
        self.needs_refresh = True
        """True if the group's topics may have changed since ``metadata_hash`` was computed. Only in
        memory: it is set by the shard, when a topic changes and after a load.
        """

    @property
    def is_empty(self) -> bool:
        """True while the group has no members."""
        return not self.members

    @property
    def state(self) -> ModernGroupState:
        """The state of the group."""
        if not self.members:
            return ModernGroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return ModernGroupState.ASSIGNING
        epoch = self.assignment_epoch
        if all(is_reconciled_to(member, epoch) for member in self.members.values()):
            return ModernGroupState.STABLE
        return ModernGroupState.RECONCILING

    def require_member(self, member_id: str) -> M:
        """Return a member; UNKNOWN_MEMBER_ID if there is none with this id."""
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def subscribed_names(self) -> set[str]:
        """Return every topic that a member subscribes to."""
        return set(self.topic_counts)

    def is_subscribed_to(self, topic: str) -> bool:
        """True if a member subscribes to the topic."""
        return topic in self.topic_counts

    # Replay

    def put_member(self, member: M) -> None:
        """Add a member or replace the one with its id."""
        self._count(self.members.get(member.member_id), -1)
        self.members[member.member_id] = member
        self._count(member, 1)

    def remove_member(self, member_id: str) -> M | None:
        """Remove a member and return it, or None."""
        member = self.members.pop(member_id, None)
        self._count(member, -1)
        return member

    def put_target(self, member_id: str, target: Assignment | None) -> None:
        """Set what a member is meant to have; None removes it."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def _count(self, member: M | None, by: int) -> None:
        if member is None:
            return
        counts = self.topic_counts
        for name in member.subscribed_topic_names:
            counts[name] += by
            if not counts[name]:
                del counts[name]
