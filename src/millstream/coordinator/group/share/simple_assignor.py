"""The assignor of share groups: partitions are shared by as few members as all members allow.

Every partition gets the same number of members: as many as it takes for each member to have a
partition. Members keep what they have as far as that allows. Where members subscribe to different
topics, each topic is divided for itself. Kafka: ``SimpleAssignor``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from millstream.coordinator.group.modern.assignor import (
    Assignment,
    GroupSpec,
    SubscribedTopics,
)
from millstream.model.topic import TopicId

_Place = tuple[TopicId, int]
"""A partition of a topic."""


class SimpleAssignor:
    """Divides the assignable partitions among the members of a share group."""

    name: Final = "simple"

    def assign(self, group: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Assignment]:
        """Return the new target of every member."""
        subscribed = sorted({each for m in group.members.values() for each in m.topic_ids})
        places = {
            topic_id: [(topic_id, p) for p in topics.partitions(topic_id)]
            for topic_id in subscribed
        }
        present = {
            member_id: {(topic_id, p) for topic_id, parts in member.target.items() for p in parts}
            for member_id, member in group.members.items()
        }
        if group.is_homogeneous:
            every = [place for topic_id in subscribed for place in places[topic_id]]
            divided = [_divide(every, list(group.members), present)]
        else:
            divided = [
                _divide(
                    places[topic_id],
                    [name for name, each in group.members.items() if topic_id in each.topic_ids],
                    present,
                )
                for topic_id in subscribed
            ]
        targets: dict[str, dict[TopicId, set[int]]] = {name: {} for name in group.members}
        for given in divided:
            for member_id, own in given.items():
                for topic_id, partition in own:
                    targets[member_id].setdefault(topic_id, set()).add(partition)
        return {
            member_id: {topic_id: frozenset(parts) for topic_id, parts in target.items()}
            for member_id, target in targets.items()
        }


def _divide(
    places: Sequence[_Place], members: Sequence[str], present: Mapping[str, set[_Place]]
) -> dict[str, set[_Place]]:
    """Return the partitions of each member.

    Each of P partitions gets ceil(M / P) of M members; the counts of any two members differ by one
    at most.
    """
    if not places or not members:
        return {member_id: set() for member_id in members}
    sharing = -(-len(members) // len(places))
    total = sharing * len(places)
    room = {
        member_id: -(-total * (index + 1) // len(members)) + -total * index // len(members)
        for index, member_id in enumerate(members)
    }
    wanted = dict.fromkeys(places, sharing)
    given: dict[str, set[_Place]] = {member_id: set() for member_id in members}
    for member_id in members:
        for place in sorted(present[member_id]):
            if len(given[member_id]) == room[member_id]:
                break
            if wanted.get(place, 0):
                wanted[place] -= 1
                given[member_id].add(place)
    _fill(places, wanted, room, given)
    return given


def _fill(
    places: Sequence[_Place],
    wanted: dict[_Place, int],
    room: Mapping[str, int],
    given: dict[str, set[_Place]],
) -> None:
    """Give the partitions that want members to members that have room, in turn."""
    unfilled = deque(name for name, own in given.items() if len(own) < room[name])
    for place in places:
        for _ in range(len(unfilled)):
            if not wanted[place]:
                break
            member_id = unfilled.popleft()
            if place not in given[member_id]:
                given[member_id].add(place)
                wanted[place] -= 1
            if len(given[member_id]) < room[member_id]:
                unfilled.append(member_id)
