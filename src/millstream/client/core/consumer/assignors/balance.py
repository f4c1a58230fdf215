"""The plan behind both sticky assignors: balanced first, then as few moves as possible.

*Balanced*: no member could take a partition, which it wants, from one that has at least two more.
Among the members that wish for the same topics this is: sizes differ by at most one. Rack
matching (KIP-881) comes after balance and stickiness. Kafka: ``AbstractStickyAssignor``; the
plans differ from Kafka's in which of several equal choices is taken.
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
    for place in plan.partitions:
        owner = current.get(place)
        if owner is not None and plan.wants(owner, place):
            kept[owner].append(place)
        else:
            unassigned.append(place)
    if len({member.topics for member in members}) <= 1:
        _assign_uniform(plan, kept, unassigned)
    else:
        _assign_general(plan, kept, unassigned)
    for partitions in kept.values():
        partitions.sort()
    return kept


class _Plan:
    """Who wants what, and where it lies."""

    def __init__(self, topics: TopicRacks, members: Sequence[GroupMember]) -> None:
        wanted = sorted({topic for member in members for topic in member.topics})
        self.partitions = [place for topic in wanted for place in all_partitions(topic, topics)]
        self.members = [member.member_id for member in members]
        self._topics = {member.member_id: member.topics for member in members}
        self._racks = {member.member_id: member.rack_id for member in members}
        self._replicas = topics
        every = [racks for topic in wanted for racks in topics.get(topic, ())]
        self.by_rack = racks_matter(self._racks.values(), every) if every else False

    def wants(self, member_id: str, place: TopicPartition) -> bool:
        """Return True when the member is there and subscribed to the topic."""
        return place.topic in self._topics.get(member_id, ())

    def is_near(self, member_id: str, place: TopicPartition) -> bool:
        """Return True when a replica lies in the member's rack."""
        return self._racks[member_id] in self._replicas[place.topic][place.partition]


def _assign_uniform(plan: _Plan, kept: Assignments, unassigned: list[TopicPartition]) -> None:
    """Fill every member to its quota: all want the same, so sizes differ by at most one.

    The room of all members always adds up to what is unassigned, whatever order is taken.
    """
    quota, extra = divmod(len(plan.partitions), len(plan.members))
    for member_id, partitions in kept.items():
        limit = quota
        if len(partitions) > quota and extra:
            limit, extra = quota + 1, extra - 1
        if len(partitions) > limit:
            if plan.by_rack:
                partitions.sort(key=lambda place: not plan.is_near(member_id, place))
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
    """Deal partitions to members with room, in turn; return what is left and the extras."""
    quota, extra = quota_and_extra
    left: list[TopicPartition] = []
    order = [member_id for member_id in plan.members if len(kept[member_id]) < quota or extra]
    turn = 0
    for place in unassigned:
        for step in range(len(order)):
            member_id = order[(turn + step) % len(order)]
            size = len(kept[member_id])
            if size >= quota + (extra > 0) or (near_only and not plan.is_near(member_id, place)):
                continue
            kept[member_id].append(place)
            extra -= size == quota
            turn += step + 1
            break
        else:
            left.append(place)
            continue
        if turn >= len(order):
            turn = 0
            order = [each for each in order if len(kept[each]) < quota + (extra > 0)]
    return left, extra


def _assign_general(plan: _Plan, kept: Assignments, unassigned: list[TopicPartition]) -> None:
    """Members want different topics: give to the smallest, then move while it helps."""
    candidates = {
        topic: [member_id for member_id in plan.members if plan.wants(member_id, place)]
        for topic, place in {place.topic: place for place in plan.partitions}.items()
    }
    for place in sorted(unassigned, key=lambda each: (len(candidates[each.topic]), each)):
        smallest = _smallest(plan, kept, candidates[place.topic], place)
        kept[smallest].append(place)
    owner = {place: member_id for member_id, places in kept.items() for place in places}
    moved = True
    while moved:
        moved = False
        for place in plan.partitions:
            giver = owner[place]
            taker = _smallest(plan, kept, candidates[place.topic], place)
            if len(kept[giver]) > len(kept[taker]) + 1:
                kept[giver].remove(place)
                kept[taker].append(place)
                owner[place] = taker
                moved = True


def _smallest(
    plan: _Plan, kept: Assignments, candidates: Sequence[str], place: TopicPartition
) -> str:
    def rank(member_id: str) -> tuple[int, bool]:
        return len(kept[member_id]), plan.by_rack and not plan.is_near(member_id, place)

    return min(candidates, key=rank)
