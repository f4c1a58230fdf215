"""The plan behind both sticky assignors: balanced first, then as few moves as possible.

*Balanced*: no member could take a subscribed partition from one that has at least two more. Among
members with the same subscription this means that sizes differ by at most one. Rack matching
(KIP-881) comes after balance and stickiness. Kafka: ``AbstractStickyAssignor``; the plans differ
from Kafka's in which of several equal choices is taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.client.core.consumer.assignors.assignor import (
    Assignments,
    GroupMember,
    TopicRacks,
    all_partitions,
    racks_matter,
)
from millstream.model.topic import TopicPartition


def assign_balanced(
    topics: TopicRacks, members: Sequence[GroupMember], current: Mapping[TopicPartition, str]
) -> Assignments:
    """Return a balanced assignment that keeps what it can of ``current`` (partition to member)."""
    plan = _Plan(topics, members)
    kept: Assignments = {member.member_id: [] for member in members}
    unassigned: list[TopicPartition] = []
    for topic_partition in plan.partitions:
        owner = current.get(topic_partition)
        if owner is not None and plan.wants(owner, topic_partition):
            kept[owner].append(topic_partition)
        else:
            unassigned.append(topic_partition)
    if len({member.topics for member in members}) <= 1:
        _assign_uniform(plan, kept, unassigned)
    else:
        _assign_general(plan, kept, unassigned)
    for partitions in kept.values():
        partitions.sort()
    return kept


class _Plan:
    """The subscriptions of members, and the racks of partitions."""

    def __init__(self, topics: TopicRacks, members: Sequence[GroupMember]) -> None:
        wanted = sorted({topic for member in members for topic in member.topics})
        self.partitions = [
            topic_partition for topic in wanted for topic_partition in all_partitions(topic, topics)
        ]
        self.members = [member.member_id for member in members]
        self._topics = {member.member_id: member.topics for member in members}
        self._racks = {member.member_id: member.rack_id for member in members}
        self._replicas = topics
        every = [racks for topic in wanted for racks in topics.get(topic, ())]
        self.by_rack = racks_matter(self._racks.values(), every) if every else False

    def wants(self, member_id: str, topic_partition: TopicPartition) -> bool:
        """Return True when the member is there and subscribed to the topic."""
        return topic_partition.topic in self._topics.get(member_id, ())

    def is_near(self, member_id: str, topic_partition: TopicPartition) -> bool:
        """Return True if a replica is in the member's rack."""
        return (
            self._racks[member_id]
            in self._replicas[topic_partition.topic][topic_partition.partition]
        )


def _assign_uniform(plan: _Plan, kept: Assignments, unassigned: list[TopicPartition]) -> None:
    """Fill every member to its quota: with equal subscriptions sizes differ by at most one.

    The room of all members always adds up to what is unassigned, whatever order is taken.
    """
    quota, extra = divmod(len(plan.partitions), len(plan.members))
    for member_id, partitions in kept.items():
        limit = quota
        if len(partitions) > quota and extra:
            limit, extra = quota + 1, extra - 1
        if len(partitions) > limit:
            if plan.by_rack:
                partitions.sort(
                    key=lambda topic_partition: not plan.is_near(member_id, topic_partition)
                )
            unassigned += partitions[limit:]
            del partitions[limit:]
    unassigned.sort()
    if plan.by_rack:
        unassigned, extra = _fill(plan, kept, unassigned, (quota, extra), near_only=True)
    _fill(plan, kept, unassigned, (quota, extra), near_only=False)


def _fill(
    plan: _Plan,
    kept: Assignments,
    unassigned: list[TopicPartition],
    quota_and_extra: tuple[int, int],
    *,
    near_only: bool,
) -> tuple[list[TopicPartition], int]:
    """Assign partitions to members with room, in turn; return the rest and the extras."""
    quota, extra = quota_and_extra
    left: list[TopicPartition] = []
    order = [member_id for member_id in plan.members if len(kept[member_id]) < quota or extra]
    next_index = 0
    for topic_partition in unassigned:
        for step in range(len(order)):
            member_id = order[(next_index + step) % len(order)]
            size = len(kept[member_id])
            if size >= quota + (extra > 0) or (
                near_only and not plan.is_near(member_id, topic_partition)
            ):
                continue
            kept[member_id].append(topic_partition)
            extra -= size == quota
            next_index += step + 1
            break
        else:
            left.append(topic_partition)
            continue
        if next_index >= len(order):
            next_index = 0
            order = [each for each in order if len(kept[each]) < quota + (extra > 0)]
    return left, extra


def _assign_general(plan: _Plan, kept: Assignments, unassigned: list[TopicPartition]) -> None:
    """With different subscriptions: assign to the smallest member, then move while it helps."""
    candidates = {
        topic: [member_id for member_id in plan.members if plan.wants(member_id, topic_partition)]
        for topic, topic_partition in {
            topic_partition.topic: topic_partition for topic_partition in plan.partitions
        }.items()
    }
    for topic_partition in sorted(unassigned, key=lambda each: (len(candidates[each.topic]), each)):
        smallest = _smallest(plan, kept, candidates[topic_partition.topic], topic_partition)
        kept[smallest].append(topic_partition)
    owner = {
        topic_partition: member_id
        for member_id, topic_partitions in kept.items()
        for topic_partition in topic_partitions
    }
    moved = True
    while moved:
        moved = False
        for topic_partition in plan.partitions:
            giver = owner[topic_partition]
            taker = _smallest(plan, kept, candidates[topic_partition.topic], topic_partition)
            if len(kept[giver]) > len(kept[taker]) + 1:
                kept[giver].remove(topic_partition)
                kept[taker].append(topic_partition)
                owner[topic_partition] = taker
                moved = True


def _smallest(
    plan: _Plan, kept: Assignments, candidates: Sequence[str], topic_partition: TopicPartition
) -> str:
    def rank(member_id: str) -> tuple[int, bool]:
        return len(kept[member_id]), plan.by_rack and not plan.is_near(member_id, topic_partition)

    return min(candidates, key=rank)
