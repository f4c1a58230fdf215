"""The assignor ``range``: every topic is divided into as many runs as it has consumers.

Partition numbers of different topics go to the same member when the topics have as many
partitions and the same consumers. With racks known (KIP-881), partitions go first to consumers in
a rack that has a replica, as far as the sizes of the runs and co-partitioning allow. The outcome
equals Kafka's ``RangeAssignor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millstream.client.core.consumer.assignors.assignor import (
    Assignments,
    GroupMember,
    Memoryless,
    TopicRacks,
    in_order,
    racks_matter,
)
from millstream.model.topic import TopicPartition


class RangeAssignor(Memoryless):
    """Contiguous partitions of every topic for every member."""

    name = "range"

    def assign(self, topics: TopicRacks, members: Sequence[GroupMember]) -> Assignments:
        """Divide every topic among its subscribers."""
        ordered = in_order(members)
        assignments: Assignments = {member.member_id: [] for member in members}
        wanted = sorted({topic for member in members for topic in member.topics})
        divisions = [
            _Division(topic, topics[topic], [m for m in ordered if topic in m.topics], assignments)
            for topic in wanted
            if topics.get(topic)
        ]
        by_rack = any(division.by_rack for division in divisions)
        if by_rack:
            _assign_by_rack(divisions)
        for division in divisions:
            division.assign_ranges(lambda consumer, number: True)
        if by_rack:
            for partitions in assignments.values():
                partitions.sort()
        return assignments


class _Division:
    """One topic while it is divided: the unassigned partitions, and the remaining room of
    consumers.
    """

    def __init__(
        self,
        topic: str,
        racks: Sequence[frozenset[str]],
        members: Sequence[GroupMember],
        assignments: Assignments,
    ) -> None:
        self.consumers = {member.member_id: member.rack_id for member in members}
        self.count = len(racks)
        self.by_rack = racks_matter(self.consumers.values(), racks)
        self._topic = topic
        self._racks = racks
        self._left = dict.fromkeys(range(len(racks)))
        self._taken = dict.fromkeys(self.consumers, 0)
        self._quota, self._extra = divmod(len(racks), len(members))
        self._assignments = assignments

    def room(self, consumer: str) -> int:
        """Return how many partitions more the consumer may get."""
        return max(0, self._quota + (self._extra > 0) - self._taken[consumer])

    def racks_match(self, consumer: str, number: int) -> bool:
        """Return True when the partition has a replica in the consumer's rack, if it has one."""
        rack = self.consumers[consumer]
        return not rack or rack in self._racks[number]

    def give(self, consumer: str, numbers: Sequence[int]) -> None:
        """Assign the partitions with these numbers."""
        self._assignments[consumer] += [TopicPartition(self._topic, each) for each in numbers]
        self._taken[consumer] += len(numbers)
        if self._taken[consumer] > self._quota:
            self._extra -= 1
        for each in numbers:
            del self._left[each]

    def assign_ranges(self, may_have: Callable[[str, int], bool]) -> None:
        """Assign to every consumer the first unassigned partitions that it may have, up to its
        room.
        """
        for consumer in self.consumers:
            fitting = [number for number in self._left if may_have(consumer, number)]
            fitting = fitting[: self.room(consumer)]
            if fitting:
                self.give(consumer, fitting)


def _assign_by_rack(divisions: Sequence[_Division]) -> None:
    """Assign partitions within racks; co-partitioned topics stay together."""
    groups: dict[tuple[tuple[str, ...], int], list[_Division]] = {}
    for division in divisions:
        groups.setdefault((tuple(division.consumers), division.count), []).append(division)
    for group in groups.values():
        if len(group) > 1:
            _assign_together(group)
        elif group[0].by_rack:
            group[0].assign_ranges(group[0].racks_match)


def _assign_together(group: Sequence[_Division]) -> None:
    """Assign partition i of all topics to one consumer whose rack matches all of them."""
    remaining = list(group[0].consumers)
    for number in range(group[0].count):
        for consumer in remaining:
            if all(each.racks_match(consumer, number) and each.room(consumer) for each in group):
                for each in group:
                    each.give(consumer, [number])
                if not any(each.room(consumer) for each in group):
                    remaining.remove(consumer)
                break
