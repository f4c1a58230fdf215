"""Random consumers of both protocols, topics, clocks and restarts against one coordinator.

Held at every step: no partition has two owners, among the members that the coordinator knows and
among the consumers that believe they own one. Held when it is quiet: every consumer has its target,
and together they have everything. Held always: what is rebuilt from the log equals what is in
memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.coordinator.consumer.classic_consumer import ClassicConsumer
from tests.unit.coordinator.consumer.consumer_scene import Consumer, ConsumerScene, topics

from millstream.coordinator.group.classic_group import ClassicGroup
from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.group.consumer.range_assignor import RangeAssignor
from millstream.coordinator.group.consumer.uniform_assignor import UniformAssignor
from millstream.coordinator.group.modern.assignor import (
    AllPartitions,
    Assignment,
    GroupSpec,
    MemberSubscription,
)
from millstream.coordinator.group.modern.topics import FixedTopics, TopicMetadata
from millstream.model.topic import TopicId

NAMES = ("t", "u", "v")
MEMBERS = ("a", "b", "c", "d")

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("lose the answer"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("hold back"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("leave"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("leave for a while"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("subscribe"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("change protocol"), st.sampled_from(MEMBERS)),
        st.tuples(st.just("everybody"), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from(("200", "1500", "20000"))),
        st.tuples(st.just("grow"), st.sampled_from(NAMES)),
        st.tuples(st.just("delete"), st.sampled_from(NAMES)),
        st.tuples(st.just("reload"), st.just("")),
    ),
    max_size=60,
)


@dataclass
class World:
    """The consumers and the coordinator."""

    scene: ConsumerScene = field(default_factory=lambda: ConsumerScene(topics=topics(t=3, u=2)))
    consumers: dict[str, Consumer | ClassicConsumer] = field(default_factory=dict)
    classics: set[str] = field(default_factory=lambda: {"b", "d"})
    """The names of those that speak the classic protocol."""
    partitions: dict[str, int] = field(default_factory=lambda: {"t": 3, "u": 2})
    turns: int = 0

    def consumer(self, name: str) -> Consumer | ClassicConsumer:
        if name not in self.consumers:
            static = {"c": "ic", "d": "id"}.get(name)
            names = list(NAMES[:2])
            if name in self.classics:
                self.consumers[name] = ClassicConsumer(self.scene, names, instance_id=static)
            else:
                self.consumers[name] = Consumer(
                    self.scene, f"{name}-{self.turns}", names=names, instance_id=static
                )
        return self.consumers[name]

    def step(self, kind: str, what: str) -> None:
        self.turns += 1
        match kind:
            case "beat":
                beat(self.consumer(what))
            case "everybody":
                for consumer in self.consumers.values():
                    beat(consumer)
            case "lose the answer":
                self._lose(self.consumer(what))
            case "hold back":
                self._hold_back(self.consumer(what))
            case "leave":
                self._leave(what, for_good=True)
                self.consumer(what)
            case "leave for a while":
                self._leave(what, for_good=False)
                self.consumer(what)
            case "change protocol":
                self._leave(what, for_good=what in "ab")
                self.classics ^= {what}
                self.consumer(what)
            case "subscribe":
                self._subscribe(self.consumer(what))
            case "wait":
                self.scene.advance(int(what))
            case "grow":
                self.partitions[what] = self.partitions.get(what, 0) + 1
                self.scene.put_topic(what, self.partitions[what])
            case "delete":
                if self.partitions.pop(what, None):
                    self.scene.remove_topic(what)
            case "reload":
                self.reload()

    def _lose(self, consumer: Consumer | ClassicConsumer) -> None:
        """The coordinator answers and the consumer does not hear it."""
        if isinstance(consumer, ClassicConsumer):
            consumer.step()
            consumer.disconnect()
            return
        epoch, owned = consumer.epoch, consumer.owned
        consumer.beat()
        if consumer.epoch:
            consumer.epoch, consumer.owned = epoch, owned
            consumer.says_everything = True

    def _hold_back(self, consumer: Consumer | ClassicConsumer) -> None:
        """The consumer hears what it has to give back, and does not do so yet."""
        if isinstance(consumer, ClassicConsumer):
            consumer.step()
            return
        owned = consumer.owned
        consumer.beat()
        if consumer.epoch:
            for name, parts in owned.items():
                kept = set(consumer.owned.get(name, [])) | set(parts)
                consumer.owned[name] = sorted(kept)

    def _leave(self, name: str, *, for_good: bool) -> None:
        consumer = self.consumers.get(name)
        if consumer is None or (not for_good and consumer.instance_id is None):
            return
        del self.consumers[name]
        if isinstance(consumer, Consumer):
            epoch = -1 if for_good else -2
            self.scene.beat_error(consumer.member_id, epoch, instance_id=consumer.instance_id)
        elif for_good:
            self.scene.leave((consumer.member_id, consumer.instance_id))

    def _subscribe(self, consumer: Consumer | ClassicConsumer) -> None:
        assert consumer.names is not None
        consumer.names = list(NAMES[1:]) if consumer.names == list(NAMES[:2]) else list(NAMES[:2])
        if isinstance(consumer, Consumer):
            consumer.says_everything = True
        else:
            consumer.disconnect()
            consumer.has_to_join = True
        beat(consumer)

    def reload(self) -> None:
        scene = self.scene.loaded()
        assert isinstance(scene, ConsumerScene)
        before, after = self.scene.coordinator.groups.get("g"), scene.coordinator.groups.get("g")
        assert isinstance(before, ConsumerGroup) == isinstance(after, ConsumerGroup)
        if isinstance(before, ConsumerGroup) and isinstance(after, ConsumerGroup):
            for name in (
                "members",
                "targets",
                "owners",
                "group_epoch",
                "assignment_epoch",
                "assignment_timestamp_ms",
                "metadata_hash",
                "static_members",
                "topic_counts",
                "server_assignors",
            ):
                assert getattr(before, name) == getattr(after, name), name
        self.scene = scene
        for consumer in self.consumers.values():
            consumer.scene = scene
            if isinstance(consumer, ClassicConsumer):
                consumer.disconnect()

    def check(self) -> None:
        group = self.scene.coordinator.groups.get("g")
        if isinstance(group, ConsumerGroup):
            self._check_owners(group)
        elif not isinstance(group, ClassicGroup):
            return
        believed = Counter(
            (name, partition)
            for consumer in self.consumers.values()
            if consumer.member_id in group.members
            for name, parts in consumer.owned.items()
            for partition in parts
        )
        assert not [place for place, count in believed.items() if count > 1]

    def _check_owners(self, group: ConsumerGroup) -> None:
        owners = Counter(
            (topic_id, partition)
            for member in group.members.values()
            for epochs in (member.assigned, member.pending_revocation)
            for topic_id, parts in epochs.items()
            for partition in parts
        )
        assert not [place for place, count in owners.items() if count > 1]
        assert set(owners) == set(group.owners)

    def quiet(self) -> None:
        """Let everybody follow, and look whether all is given out."""
        for _ in range(90):
            self.scene.advance(1_000)
            for consumer in self.consumers.values():
                beat(consumer)
            self.check()
        group = self.scene.coordinator.groups.get("g")
        if not self.consumers:
            return
        assert isinstance(group, ConsumerGroup | ClassicGroup)
        assert group.state.value == "Stable"
        assert len(group.members) == len(self.consumers)
        wanted = {
            (name, partition)
            for name, count in self.partitions.items()
            for partition in range(count)
            if any(name in (consumer.names or ()) for consumer in self.consumers.values())
        }
        owned = [
            (name, partition)
            for consumer in self.consumers.values()
            for name, parts in consumer.owned.items()
            for partition in parts
        ]
        assert sorted(owned) == sorted(wanted)


def beat(consumer: Consumer | ClassicConsumer) -> None:
    if isinstance(consumer, Consumer):
        consumer.beat()
    else:
        consumer.step()


@pytest.mark.slow
@settings(max_examples=examples(250), deadline=None)
@given(STEPS)
def test_no_partition_has_two_owners_and_everything_is_given_out(
    steps: list[tuple[str, str]],
) -> None:
    world = World()
    for kind, what in steps:
        world.step(kind, what)
        world.check()
    world.reload()
    world.quiet()
    world.reload()


# Assignors

RACKS = ("r1", "r2", None)


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool) -> tuple[FixedTopics, GroupSpec]:
    counts = draw(st.lists(st.integers(0, 7), min_size=1, max_size=4))
    found = []
    for index, count in enumerate(counts):
        racks = tuple(
            frozenset(draw(st.sets(st.sampled_from(("r1", "r2")), max_size=2)))
            for _ in range(count)
        )
        found.append(TopicMetadata(f"t{index}", TopicId(bytes([index]) * 16), count, racks))
    everything = frozenset(topic.topic_id for topic in found)
    size = draw(st.integers(1, 6))
    places = [(topic.topic_id, part) for topic in found for part in range(topic.partition_count)]
    owner = {place: draw(st.integers(-1, size - 1)) for place in places}
    members = {}
    for index in range(size):
        topic_ids = everything
        if not homogeneous:
            topic_ids = frozenset(draw(st.sets(st.sampled_from(sorted(everything)))))
        target: dict[TopicId, set[int]] = {}
        for (topic_id, part), owned_by in owner.items():
            if owned_by == index:
                target.setdefault(topic_id, set()).add(part)
        members[f"m{index}"] = MemberSubscription(
            topic_ids,
            rack_id=draw(st.sampled_from(RACKS)),
            target={topic_id: frozenset(parts) for topic_id, parts in target.items()},
        )
    return FixedTopics(found), GroupSpec(members)


def sizes(targets: dict[str, Assignment]) -> dict[str, int]:
    return {name: sum(map(len, target.values())) for name, target in targets.items()}


def check_complete(group: GroupSpec, found: FixedTopics, targets: dict[str, Assignment]) -> None:
    """Every partition with a subscriber has one owner, which subscribes to it."""
    wanted = {topic_id for member in group.members.values() for topic_id in member.topic_ids}
    places = Counter(
        (topic_id, part)
        for target in targets.values()
        for topic_id, parts in target.items()
        for part in parts
    )
    every = {(t, part) for t in wanted for part in AllPartitions(found).partitions(t)}
    assert set(places) == every
    assert set(places.values()) <= {1}
    for name, target in targets.items():
        assert set(target) <= group.members[name].topic_ids
        assert all(target.values())


@given(groups(homogeneous=True))
def test_uniform_is_complete_balanced_and_sticky(made: tuple[FixedTopics, GroupSpec]) -> None:
    found, group = made
    targets = dict(UniformAssignor().assign(group, AllPartitions(found)))
    check_complete(group, found, targets)
    counts = sizes(targets)
    assert max(counts.values()) - min(counts.values()) <= 1
    # What stays is as much as any balanced assignment could keep.
    least, extra = divmod(sum(counts.values()), len(counts))
    had = sorted(
        (sum(map(len, member.target.values())) for member in group.members.values()), reverse=True
    )
    could_stay = sum(min(count, least + (i < extra)) for i, count in enumerate(had))
    stays = sum(
        len(parts & group.members[name].target.get(topic_id, frozenset()))
        for name, target in targets.items()
        for topic_id, parts in target.items()
    )
    assert stays == could_stay
    again = GroupSpec(
        {
            name: MemberSubscription(member.topic_ids, rack_id=member.rack_id, target=targets[name])
            for name, member in group.members.items()
        }
    )
    assert UniformAssignor().assign(again, AllPartitions(found)) == targets


@pytest.mark.slow
@given(groups(homogeneous=False))
def test_uniform_with_different_subscriptions(made: tuple[FixedTopics, GroupSpec]) -> None:
    found, group = made
    targets = dict(UniformAssignor().assign(group, AllPartitions(found)))
    check_complete(group, found, targets)
    counts = sizes(targets)
    for name, target in targets.items():
        for topic_id in target:
            for other, member in group.members.items():
                if topic_id in member.topic_ids:
                    assert counts[name] - counts[other] <= 1
    again = GroupSpec(
        {
            name: MemberSubscription(member.topic_ids, rack_id=member.rack_id, target=targets[name])
            for name, member in group.members.items()
        }
    )
    assert UniformAssignor().assign(again, AllPartitions(found)) == targets


@pytest.mark.slow
@given(groups(homogeneous=True) | groups(homogeneous=False))
def test_range_is_complete_and_even_for_each_topic(made: tuple[FixedTopics, GroupSpec]) -> None:
    found, group = made
    targets = dict(RangeAssignor().assign(group, AllPartitions(found)))
    check_complete(group, found, targets)
    for topic_id in {each for member in group.members.values() for each in member.topic_ids}:
        shares = [
            targets[name].get(topic_id, frozenset())
            for name, member in group.members.items()
            if topic_id in member.topic_ids
        ]
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
        for parts in shares:
            assert not parts or parts == frozenset(range(min(parts), max(parts) + 1))


def test_range_gives_the_same_partitions_of_equal_topics_to_a_member() -> None:
    found = topics(t=5, u=5)
    ids = frozenset(each.topic_id for name in "tu" if (each := found.topic(name)))
    members = {f"m{i}": MemberSubscription(ids, instance_id=f"i{3 - i}") for i in range(3)}
    targets = RangeAssignor().assign(GroupSpec(members), AllPartitions(found))
    for target in targets.values():
        assert len(set(target.values())) == 1
    assert min(next(iter(targets["m2"].values()))) == 0  # by instance id, not by member id


def test_uniform_prefers_partitions_with_a_replica_in_the_rack() -> None:
    racks = tuple(frozenset({f"r{i % 2}"}) for i in range(6))
    found = FixedTopics([TopicMetadata("t", TopicId(b"t" * 16), 6, racks)])
    ids = frozenset({TopicId(b"t" * 16)})
    members = {f"m{i}": MemberSubscription(ids, rack_id=f"r{i}") for i in range(2)}
    targets = UniformAssignor().assign(GroupSpec(members), AllPartitions(found))
    assert targets["m0"] == {TopicId(b"t" * 16): {0, 2, 4}}
    assert targets["m1"] == {TopicId(b"t" * 16): {1, 3, 5}}
