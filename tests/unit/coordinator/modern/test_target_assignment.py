"""The shared parts of modern groups: the image of topics, members, the target assignment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from millstream.coordinator.group.modern.assignor import (
    AllPartitions,
    Assignment,
    GroupSpec,
    SubscribedTopics,
)
from millstream.coordinator.group.modern.member import MemberState, is_reconciled_to
from millstream.coordinator.group.modern.modern_group import ModernGroup, ModernGroupState
from millstream.coordinator.group.modern.target_assignment import compute_target
from millstream.coordinator.group.modern.topics import (
    FixedTopics,
    NoTopics,
    TopicMetadata,
    metadata_hash,
)
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicId

A = TopicMetadata("a", TopicId(b"a" * 16), 2)
B = TopicMetadata("b", TopicId(b"b" * 16), 1, racks=(frozenset({"r1"}),))


@dataclass(frozen=True)
class Member:
    member_id: str
    subscribed_topic_names: frozenset[str]
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 1
    state: MemberState = MemberState.STABLE


class EverythingToTheFirst:
    """An assignor."""

    name = "first"

    def assign(self, group: GroupSpec, topics: SubscribedTopics) -> Mapping[str, Assignment]:
        member_id, member = next(iter(group.members.items()))
        return {
            member_id: {
                topic_id: frozenset(topics.partitions(topic_id)) for topic_id in member.topic_ids
            }
        }


def test_the_changed_members_are_those_whose_target_differs_or_is_new() -> None:
    topics = FixedTopics([A, B])
    members = [Member(name, frozenset({"a", "missing"})) for name in ("one", "two", "three")]
    present: dict[str, Assignment] = {"one": {A.topic_id: frozenset({0, 1})}, "two": {}}
    target = compute_target(
        EverythingToTheFirst(),
        members,
        names_of=lambda member: member.subscribed_topic_names,
        target_of=lambda member: present.get(member.member_id),
        topics=topics,
        assignable=AllPartitions(topics),
    )
    assert target.of("one") == {A.topic_id: {0, 1}}
    assert target.of("two") == {}
    assert target.changed == ("three",)


def test_the_hash_covers_what_an_assignment_depends_on() -> None:
    topics = FixedTopics([A])
    before = metadata_hash(["a", "b"], topics)
    assert before == metadata_hash(["b", "a"], topics) != 0
    topics.put(B)
    with_b = metadata_hash(["a", "b"], topics)
    assert with_b != before
    topics.put(TopicMetadata("b", B.topic_id, 1, racks=(frozenset({"r2"}),)))
    assert metadata_hash(["a", "b"], topics) != with_b
    topics.put(TopicMetadata("b", B.topic_id, 2))
    assert metadata_hash(["a", "b"], topics) != with_b
    topics.remove("b")
    assert metadata_hash(["a", "b"], topics) == before


def test_without_topics_the_hash_is_0() -> None:
    assert metadata_hash(["a"], NoTopics()) == 0


def test_a_group_goes_from_empty_through_assigning_and_reconciling_to_stable() -> None:
    group: ModernGroup[Member] = ModernGroup("g")
    assert group.state is ModernGroupState.EMPTY
    group.put_member(Member("one", frozenset({"a"})))
    group.group_epoch = 2
    assert group.state is ModernGroupState.ASSIGNING
    group.assignment_epoch = 2
    assert group.state is ModernGroupState.RECONCILING
    group.put_member(Member("one", frozenset({"a"}), member_epoch=2))
    assert group.state is ModernGroupState.STABLE


def test_subscriptions_are_counted() -> None:
    group: ModernGroup[Member] = ModernGroup("g")
    group.put_member(Member("one", frozenset({"a", "b"})))
    group.put_member(Member("two", frozenset({"a"})))
    group.put_member(Member("one", frozenset({"a"})))
    assert group.subscribed_names() == {"a"}
    group.remove_member("one")
    assert group.is_subscribed_to("a")
    group.remove_member("two")
    assert not group.is_subscribed_to("a")
    with pytest.raises(KafkaError):
        group.require_member("two")


def test_a_member_of_an_unknown_state_is_not_reconciled() -> None:
    assert MemberState(9) is MemberState.UNKNOWN
    assert not is_reconciled_to(Member("one", frozenset(), state=MemberState.UNKNOWN), 1)
