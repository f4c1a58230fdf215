"""The assignor of share groups: fair, complete, and keeping what can be kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millstream.coordinator.group.modern.assignor import Assignment, GroupSpec, MemberSubscription
from millstream.coordinator.group.share.simple_assignor import SimpleAssignor
from millstream.model.topic import TopicId

TOPICS = [TopicId(bytes([n]) * 16) for n in range(1, 4)]


class Counted:
    def __init__(self, counts: dict[TopicId, int]) -> None:
        self._counts = counts

    def partitions(self, topic_id: TopicId) -> range:
        return range(self._counts.get(topic_id, 0))

    def racks_of(self, topic_id: TopicId, partition: int) -> frozenset[str]:
        return frozenset()


counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6), max_size=3)
targets = st.dictionaries(
    st.sampled_from(TOPICS), st.frozensets(st.integers(0, 7), max_size=6), max_size=3
)


def places(assignment: Assignment) -> set[tuple[TopicId, int]]:
    return {(topic_id, index) for topic_id, indexes in assignment.items() for index in indexes}


@given(counts, st.lists(targets, min_size=1, max_size=9))
def test_members_of_one_subscription_share_fairly(
    counts: dict[TopicId, int], present: list[Assignment]
) -> None:
    topics = frozenset(TOPICS)
    members = {f"m{n}": MemberSubscription(topics, target=own) for n, own in enumerate(present)}
    assigned = SimpleAssignor().assign(GroupSpec(members), Counted(counts))
    every = [(topic_id, index) for topic_id, count in counts.items() for index in range(count)]
    sharing = -(-len(members) // len(every)) if every else 0
    given_to = [place for own in assigned.values() for place in places(own)]
    assert set(given_to) == set(every), "no partition without a member, none that is not there"
    assert all(1 <= given_to.count(place) <= sharing for place in every)
    sizes = [len(places(own)) for own in assigned.values()]
    assert max(sizes) <= -(-sharing * len(every) // len(members))
    if every:
        assert min(sizes) >= min(1, len(every)), "every member has a partition"


@given(counts, st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=8), targets)
def test_members_have_only_what_they_subscribe_to(
    counts: dict[TopicId, int], subscriptions: list[frozenset[TopicId]], old: Assignment
) -> None:
    members = {
        f"m{n}": MemberSubscription(topics, target=old) for n, topics in enumerate(subscriptions)
    }
    assigned = SimpleAssignor().assign(GroupSpec(members), Counted(counts))
    for member_id, own in assigned.items():
        assert own.keys() <= members[member_id].topic_ids
    for topic_id, count in counts.items():
        if any(topic_id in topics for topics in subscriptions):
            given_to = {index for own in assigned.values() for index in own.get(topic_id, ())}
            assert given_to == set(range(count)), "every partition has a member"


@given(counts, st.integers(1, 9))
def test_an_assignment_that_is_fair_stays(counts: dict[TopicId, int], size: int) -> None:
    topics, none = frozenset(TOPICS), Counted(counts)
    fresh = {f"m{n}": MemberSubscription(topics) for n in range(size)}
    first = SimpleAssignor().assign(GroupSpec(fresh), none)
    again = {name: MemberSubscription(topics, target=first[name]) for name in fresh}
    assert SimpleAssignor().assign(GroupSpec(again), none) == first
