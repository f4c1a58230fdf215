"""The assignor ``uniform``: balanced over all topics together, sticky, then aware of racks.

**Balanced**: with equal subscriptions the members' counts differ by one at most; with different
ones no partition could move to a member with two fewer. **Sticky**: a member keeps what it was
meant to have, as far as balance allows; the places for one partition more go to those who have it.
**Rack-aware**: what has to be given out goes first to members in a rack with a replica. Kafka's
``UniformAssignor`` has the same balance; since 4.0 it does not look at racks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from millstream.coordinator.group.modern.assignor import (
    Assignment,
    GroupSpec,
    MemberSubscription,
    SubscribedTopics,
)
from millstream.model.topic import TopicId

_Place = tuple[TopicId, int]


class UniformAssignor:
    """See the module."""

    name: Final = "uniform"

    def assign(self, group: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Assignment]:
        """Return the new target of every member."""
        if not group.members:
            return {}
        plan = _Plan(group, topics)
        if group.is_homogeneous:
            _assign_equal(plan)
        else:
            _assign_different(plan)
        return plan.targets()


class _Plan:
    """Who has what so far; what a member keeps is no longer in ``unassigned``."""

    def __init__(self, group: GroupSpec, topics: SubscribedTopics) -> None:
        self.members = group.members
        self.topics = topics
        subscribed: dict[TopicId, None] = {}
        for member in group.members.values():
            subscribed.update(dict.fromkeys(sorted(member.topic_ids)))
        self.unassigned: dict[_Place, None] = {
            (topic_id, partition): None
            for topic_id in sorted(subscribed)
            for partition in topics.partitions(topic_id)
        }
        self.partition_count = len(self.unassigned)
        self.owned: dict[str, dict[_Place, None]] = {name: {} for name in group.members}
        for name, member in group.members.items():
            for place in _present(member):
                if place in self.unassigned and place[0] in member.topic_ids:
                    del self.unassigned[place]
                    self.owned[name][place] = None

    def take(self, name: str, place: _Place) -> None:
        """Give an unassigned partition to a member."""
        del self.unassigned[place]
        self.owned[name][place] = None

    def give_up(self, name: str) -> None:
        """Take the last partition of a member back."""
        place, _ = self.owned[name].popitem()
        self.unassigned[place] = None

    def move(self, place: _Place, source: str, destination: str) -> None:
        """Move a partition."""
        del self.owned[source][place]
        self.owned[destination][place] = None

    def is_near(self, name: str, place: _Place) -> bool:
        """True if a partition has a replica in the member's rack."""
        rack_id = self.members[name].rack_id
        return bool(rack_id) and rack_id in self.topics.racks_of(*place)

    def targets(self) -> dict[str, Assignment]:
        """Return the targets."""
        targets: dict[str, Assignment] = {}
        for name, places in self.owned.items():
            found: dict[TopicId, set[int]] = {}
            for topic_id, partition in places:
                found.setdefault(topic_id, set()).add(partition)
            targets[name] = {topic_id: frozenset(parts) for topic_id, parts in found.items()}
        return targets


def _present(member: MemberSubscription) -> Iterable[_Place]:
    for topic_id, partitions in member.target.items():
        for partition in sorted(partitions):
            yield topic_id, partition


# Equal subscriptions


def _assign_equal(plan: _Plan) -> None:
    least, extra = divmod(plan.partition_count, len(plan.members))
    # Who has more than the least keeps one place for one more, as long as there are such places.
    quotas = dict.fromkeys(plan.members, least)
    by_count = sorted(plan.members, key=lambda name: -len(plan.owned[name]))
    for name in by_count[:extra]:
        quotas[name] += 1
    for name, quota in quotas.items():
        _shed_far_first(plan, name, quota)
    _fill_near(plan, {name: quota - len(plan.owned[name]) for name, quota in quotas.items()})
    _fill(plan, quotas)


def _shed_far_first(plan: _Plan, name: str, quota: int) -> None:
    """Take partitions back until a member is within its quota: those of other racks first."""
    owned = plan.owned[name]
    excess = len(owned) - quota
    if excess <= 0:
        return
    if plan.members[name].rack_id:
        # The last ones are given up, so what is near stands in front.
        plan.owned[name] = dict.fromkeys(
            sorted(owned, key=lambda place: not plan.is_near(name, place))
        )
    for _ in range(excess):
        plan.give_up(name)


def _fill_near(plan: _Plan, room: dict[str, int]) -> None:
    """Give members with room what has a replica in their rack."""
    for name, count in room.items():
        if plan.members[name].rack_id:
            near = [place for place in plan.unassigned if plan.is_near(name, place)]
            for place in near[:count]:
                plan.take(name, place)


def _fill(plan: _Plan, quotas: dict[str, int]) -> None:
    places = list(plan.unassigned)
    places.reverse()
    for name, quota in quotas.items():
        for _ in range(quota - len(plan.owned[name])):
            plan.take(name, places.pop())


# Different subscriptions


def _assign_different(plan: _Plan) -> None:
    subscribers: dict[TopicId, list[str]] = {}
    for name, member in plan.members.items():
        for topic_id in member.topic_ids:
            subscribers.setdefault(topic_id, []).append(name)
    # Topics of few members first: the others can still be chosen so that the counts come out even.
    places = sorted(plan.unassigned, key=lambda place: len(subscribers[place[0]]))
    for place in places:
        name = min(
            subscribers[place[0]],
            key=lambda each: (len(plan.owned[each]), not plan.is_near(each, place)),
        )
        plan.take(name, place)
    _balance(plan, subscribers)


def _balance(plan: _Plan, subscribers: Mapping[TopicId, list[str]]) -> None:
    """Move partitions to members with at least two fewer until there are none such.

    Every move makes the sum of the squares of the counts smaller, so this ends.
    """
    counts = {name: len(places) for name, places in plan.owned.items()}
    by_topic = {
        topic_id: {name: [p for p in plan.owned[name] if p[0] == topic_id] for name in names}
        for topic_id, names in subscribers.items()
    }
    has_moved = True
    while has_moved:
        has_moved = False
        for topic_id, names in subscribers.items():
            owned = by_topic[topic_id]
            while True:
                least = min(names, key=lambda name: counts[name])
                most = max(
                    (name for name in names if owned[name]),
                    key=lambda name: counts[name],
                    default=least,
                )
                if counts[most] - counts[least] <= 1:
                    break
                place = owned[most].pop()
                owned[least].append(place)
                plan.move(place, most, least)
                counts[most] -= 1
                counts[least] += 1
                has_moved = True
