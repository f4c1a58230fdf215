"""Brings one member's assignment towards its target, one step at a time.

::

    STABLE ──partitions to give back──▶ UNREVOKED_PARTITIONS ──given back──┐
      ▲ │                                                                  ▼
      │ └──partitions that others still have──▶ UNRELEASED_PARTITIONS ◀────┤
      └──────────────everything is there───────────────┴───────────────────┘

A partition is in ``assigned`` or ``pending_revocation`` of one member at most: a member gets only
partitions that no member has, and gives one back by not naming it among those it owns. The member
follows to the epoch of the target when it has given back all that it has to. Kafka:
``CurrentAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from millstream.coordinator.group.consumer.member import (
    NO_EPOCHS,
    ConsumerMember,
    PartitionEpochs,
    contains,
)
from millstream.coordinator.group.modern.assignor import Assignment
from millstream.coordinator.group.modern.member import MemberState
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId

Owned = Iterable[tuple[TopicId, Iterable[int]]]
"""The partitions that a member says it has."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a member is meant to have, and from which epoch on."""

    epoch: int
    partitions: Assignment


def reconcile(
    member: ConsumerMember,
    target: Target,
    *,
    subscribed: frozenset[TopicId],
    owned: Owned | None,
    owner_of: Callable[[TopicId, int], str | None],
    subscription_changed: bool,
) -> ConsumerMember:
    """Return the member after one step, or the same object if it has to wait.

    ``subscribed`` are the topics that it subscribes to now; ``owned`` is None if the request does
    not say. ``owner_of`` returns the id of the member that has a partition. Raises
    FENCED_MEMBER_EPOCH for a member in a state that this version does not know, unless it has
    nothing.
    """
    step = _Step(member, target, subscribed, owned, owner_of)
    match member.state:
        case MemberState.STABLE:
            if member.member_epoch != target.epoch:
                return step.compute(target.epoch)
            return step.drop_unsubscribed() if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if step.owns(member.pending_revocation):
                return step.drop_unsubscribed() if subscription_changed else member
            return step.compute(target.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return step.compute(target.epoch)
        case _:
            if owned is None or any(list(partitions) for _, partitions in owned):
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return step.compute(target.epoch)


@dataclass(frozen=True, slots=True)
class _Step:
    member: ConsumerMember
    target: Target
    subscribed: frozenset[TopicId]
    owned: Owned | None
    owner_of: Callable[[TopicId, int], str | None]

    def owns(self, epochs: PartitionEpochs) -> bool:
        """True if the member still has one of the partitions, or does not say."""
        if self.owned is None:
            return True
        return any(
            contains(epochs, topic_id, partition)
            for topic_id, partitions in self.owned
            for partition in partitions
        )

    def drop_unsubscribed(self) -> ConsumerMember:
        """Take back the partitions of topics that the member does not subscribe to any more."""
        member = self.member
        kept = {t: p for t, p in member.assigned.items() if t in self.subscribed}
        if len(kept) == len(member.assigned):
            return member
        pending = {topic_id: dict(parts) for topic_id, parts in member.pending_revocation.items()}
        for topic_id, partitions in member.assigned.items():
            if topic_id not in kept:
                pending.setdefault(topic_id, {}).update(partitions)
        if self.owns(pending):
            return member.with_assignment(
                MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, pending
            )
        return member.with_assignment(member.state, member.member_epoch, kept)

    def compute(self, epoch: int) -> ConsumerMember:
        """Compare what the member has with its target."""
        member = self.member
        assigned: dict[TopicId, dict[int, int]] = {}
        revoked: dict[TopicId, dict[int, int]] = {}
        added: dict[TopicId, set[int]] = {}
        is_waiting = False
        for topic_id in dict.fromkeys([*self.target.partitions, *member.assigned]):
            wanted = self.target.partitions.get(topic_id, frozenset())
            if topic_id not in self.subscribed:
                wanted = frozenset()
            present = member.assigned.get(topic_id, {})
            kept = {part: since for part, since in present.items() if part in wanted}
            gone = {part: since for part, since in present.items() if part not in wanted}
            free = {part for part in wanted if part not in kept and self._is_free(topic_id, part)}
            is_waiting = is_waiting or len(kept) + len(free) < len(wanted)
            for part, found in ((assigned, kept), (revoked, gone)):
                if found:
                    part[topic_id] = found
            if free:
                added[topic_id] = free
        if revoked and self.owns(revoked):
            return member.with_assignment(
                MemberState.UNREVOKED_PARTITIONS, member.member_epoch, assigned, revoked
            )
        for topic_id, parts in added.items():
            assigned.setdefault(topic_id, {}).update(dict.fromkeys(sorted(parts), epoch))
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        moved = member.with_assignment(state, epoch, assigned, NO_EPOCHS)
        return member if _is_same(member, moved) else moved

    def _is_free(self, topic_id: TopicId, partition: int) -> bool:
        """True if no other member has the partition."""
        return self.owner_of(topic_id, partition) in (None, self.member.member_id)


def _is_same(member: ConsumerMember, moved: ConsumerMember) -> bool:
    return (
        member.member_epoch == moved.member_epoch
        and member.state is moved.state
        and member.assigned == moved.assigned
        and member.pending_revocation == moved.pending_revocation
    )
