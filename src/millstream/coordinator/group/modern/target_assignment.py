"""Computes the target assignment of a group: what each member is meant to have.

Kafka: ``TargetAssignmentBuilder``. The caller turns the result into the records of its kind of
group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from millstream.coordinator.group.modern.assignor import (
    NO_PARTITIONS,
    Assignment,
    GroupSpec,
    MemberSubscription,
    PartitionAssignor,
    SubscribedTopics,
)
from millstream.coordinator.group.modern.member import ModernMember
from millstream.coordinator.group.modern.topics import TopicsImage
from millstream.model.topic import TopicId

M = TypeVar("M", bound=ModernMember)


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """The new target of each member, and the members whose target has changed or is new."""

    targets: Mapping[str, Assignment]
    changed: tuple[str, ...]

    def of(self, member_id: str) -> Assignment:
        """Return a member's target."""
        return self.targets.get(member_id, NO_PARTITIONS)


class TopicIds:
    """Maps sets of topic names to the ids of those that exist; equal sets are mapped once."""

    def __init__(self, topics: TopicsImage) -> None:
        self._topics = topics
        self._known: dict[frozenset[str], frozenset[TopicId]] = {}

    def of(self, names: frozenset[str]) -> frozenset[TopicId]:
        """Return the ids of the topics that exist."""
        ids = self._known.get(names)
        if ids is None:
            found = (self._topics.topic(name) for name in names)
            ids = self._known[names] = frozenset(
                topic.topic_id for topic in found if topic is not None
            )
        return ids


def compute_target(
    assignor: PartitionAssignor,
    members: Iterable[M],
    *,
    names_of: Callable[[M], frozenset[str]],
    target_of: Callable[[M], Assignment | None],
    topics: TopicsImage,
    assignable: SubscribedTopics,
) -> TargetAssignment:
    """Run an assignor over a group's members.

    ``names_of`` returns all topics that a member subscribes to; ``target_of`` its present target,
    None for a member that has none yet. Raises AssignorError.
    """
    ids = TopicIds(topics)
    present: dict[str, Assignment | None] = {}
    specs: dict[str, MemberSubscription] = {}
    for member in members:
        target = present[member.member_id] = target_of(member)
        specs[member.member_id] = MemberSubscription(
            topic_ids=ids.of(names_of(member)),
            rack_id=member.rack_id,
            instance_id=member.instance_id,
            target=NO_PARTITIONS if target is None else target,
        )
    made = assignor.assign(GroupSpec(specs), assignable)
    targets = {member_id: made.get(member_id, NO_PARTITIONS) for member_id in specs}
    changed = tuple(
        member_id for member_id, target in targets.items() if target != present[member_id]
    )
    return TargetAssignment(targets, changed)
