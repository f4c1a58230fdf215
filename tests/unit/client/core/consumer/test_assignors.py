"""The assignors: what they divide, what members keep, and what other clients' bytes mean."""

from __future__ import annotations

import random
import struct

import pytest

from millstream.client.core.consumer.assignors.assignor import (
    Assignments,
    Assignor,
    GroupMember,
    TopicRacks,
)
from millstream.client.core.consumer.assignors.range import RangeAssignor
from millstream.client.core.consumer.assignors.round_robin import RoundRobinAssignor
from millstream.client.core.consumer.assignors.sticky import (
    Claim,
    CooperativeStickyAssignor,
    StickyAssignor,
    decode_claim,
    encode_claim,
)
from millstream.model.topic import TopicPartition

NO_RACKS: frozenset[str] = frozenset()


def topics(**counts: int) -> TopicRacks:
    return {name: [NO_RACKS] * count for name, count in counts.items()}


def racks(*each: str) -> list[frozenset[str]]:
    return [frozenset(names.split(",")) for names in each]


def member(name: str, *wanted: str, **more: object) -> GroupMember:
    return GroupMember(member_id=name, topics=frozenset(wanted), **more)  # type: ignore[arg-type]


def text(assignments: Assignments) -> dict[str, list[str]]:
    return {name: [str(place) for place in places] for name, places in assignments.items()}


def test_range_gives_the_first_members_one_more() -> None:
    given = RangeAssignor().assign(
        topics(t0=3, t1=3), [member("c1", "t0", "t1"), member("c0", "t0", "t1")]
    )
    assert text(given) == {
        "c0": ["t0-0", "t0-1", "t1-0", "t1-1"],
        "c1": ["t0-2", "t1-2"],
    }


def test_static_members_come_first_and_by_their_instance() -> None:
    given = RangeAssignor().assign(
        topics(t=3),
        [
            member("a", "t"),
            member("z", "t", group_instance_id="1"),
            member("b", "t", group_instance_id="2"),
        ],
    )
    assert text(given) == {"z": ["t-0"], "b": ["t-1"], "a": ["t-2"]}


def test_range_passes_over_members_that_do_not_want_a_topic_and_topics_that_are_not_there() -> None:
    given = RangeAssignor().assign(
        topics(t0=2), [member("a", "t0", "missing"), member("b", "missing")]
    )
    assert text(given) == {"a": ["t0-0", "t0-1"], "b": []}


def test_range_matches_racks_within_the_sizes_of_the_runs() -> None:
    """KIP-881: three partitions, each in one rack, consumers in other order than the racks."""
    given = RangeAssignor().assign(
        {"t": racks("r2", "r1", "r0")},
        [member("a", "t", rack_id="r0"), member("b", "t", rack_id="r1"), member("c", "t")],
    )
    assert text(given) == {"a": ["t-2"], "b": ["t-1"], "c": ["t-0"]}


def test_range_keeps_topics_together_before_it_matches_racks() -> None:
    given = RangeAssignor().assign(
        {"t0": racks("r1", "r0"), "t1": racks("r1", "r0")},
        [member("a", "t0", "t1", rack_id="r0"), member("b", "t0", "t1", rack_id="r1")],
    )
    assert text(given) == {"a": ["t0-1", "t1-1"], "b": ["t0-0", "t1-0"]}


def test_range_ignores_racks_that_hold_everything() -> None:
    given = RangeAssignor().assign(
        {"t": racks("r0,r1", "r0,r1")},
        [member("a", "t", rack_id="r1"), member("b", "t", rack_id="r0")],
    )
    assert text(given) == {"a": ["t-0"], "b": ["t-1"]}


def test_round_robin_deals_in_turn_over_all_topics() -> None:
    given = RoundRobinAssignor().assign(
        topics(t0=1, t1=2, t2=3),
        [member("c0", "t0"), member("c1", "t0", "t1"), member("c2", "t0", "t1", "t2")],
    )
    assert text(given) == {
        "c0": ["t0-0"],
        "c1": ["t1-0"],
        "c2": ["t1-1", "t2-0", "t2-1", "t2-2"],
    }


def test_sticky_moves_only_what_a_newcomer_needs() -> None:
    first, second = StickyAssignor(), StickyAssignor()
    wanted = frozenset({"t"})
    before = first.assign(topics(t=6), [member("a", "t"), member("b", "t")])
    first.on_assignment(before["a"], 1)
    second.on_assignment(before["b"], 1)
    after = first.assign(
        topics(t=6),
        [
            member("a", "t", user_data=first.user_data(wanted)),
            member("b", "t", user_data=second.user_data(wanted)),
            member("c", "t"),
        ],
    )
    assert {name: len(places) for name, places in after.items()} == {"a": 2, "b": 2, "c": 2}
    assert set(after["a"]) < set(before["a"])
    assert set(after["b"]) < set(before["b"])


def test_sticky_believes_the_newest_claim_and_neither_of_two_equal_ones() -> None:
    place = TopicPartition("t", 0)
    old, new = encode_claim(Claim((place,), 3)), encode_claim(Claim((place,), 4))
    assigned = StickyAssignor().assign(
        topics(t=1), [member("a", "t", user_data=old), member("b", "t", user_data=new)]
    )
    assert text(assigned) == {"a": [], "b": ["t-0"]}
    assigned = StickyAssignor().assign(
        topics(t=1), [member("b", "t", user_data=new), member("a", "t", user_data=new)]
    )
    assert text(assigned) == {"a": ["t-0"], "b": []}


def test_user_data_of_sticky_is_what_java_writes() -> None:
    claim = Claim((TopicPartition("ab", 1), TopicPartition("ab", 2)), 7)
    data = bytes.fromhex("00000001 0002 6162 00000002 00000001 00000002 00000007".replace(" ", ""))
    assert encode_claim(claim) == data
    assert decode_claim(data) == claim
    assert decode_claim(data[:-4]) == Claim(claim.partitions, -1)
    for cut in range(len(data) - 4):
        assert decode_claim(data[:cut]) == Claim((), -1)


def test_cooperative_gives_a_moving_partition_to_nobody_first() -> None:
    held = tuple(TopicPartition("t", number) for number in range(4))
    assignor = CooperativeStickyAssignor()
    first = assignor.assign(
        topics(t=4), [member("a", "t", owned=held, generation=1), member("b", "t")]
    )
    assert len(first["a"]) == 2
    assert first["b"] == []
    second = assignor.assign(
        topics(t=4),
        [member("a", "t", owned=tuple(first["a"]), generation=2), member("b", "t", generation=2)],
    )
    assert second["a"] == first["a"]
    assert sorted(second["a"] + second["b"]) == list(held)


def test_cooperative_reads_the_generation_of_older_members_from_their_user_data() -> None:
    place = TopicPartition("t", 0)
    given = CooperativeStickyAssignor().assign(
        topics(t=1),
        [
            member("a", "t", owned=(place,), user_data=struct.pack(">i", 5)),
            member("b", "t", owned=(place,), user_data=struct.pack(">i", 6)),
        ],
    )
    assert text(given) == {"a": [], "b": ["t-0"]}


ASSIGNORS: list[type[Assignor]] = [
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    CooperativeStickyAssignor,
]


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", range(60))
def test_every_wanted_partition_goes_to_exactly_one_member_that_wants_it(
    assignor: type[Assignor], seed: int
) -> None:
    draw = random.Random(seed)
    layout, members = random_group(draw)
    given = assignor().assign(layout, members)
    wants = {each.member_id: each.topics for each in members}
    assert given.keys() == wants.keys()
    places = [place for owned in given.values() for place in owned]
    assert len(places) == len(set(places))
    assert all(place.topic in wants[name] for name, owned in given.items() for place in owned)
    wanted = {topic for each in members for topic in each.topics}
    assert set(places) == {
        TopicPartition(topic, number)
        for topic in wanted & layout.keys()
        for number in range(len(layout[topic]))
    }


@pytest.mark.parametrize("seed", range(150))
def test_sticky_is_balanced_and_stays_when_nothing_changes(seed: int) -> None:
    draw = random.Random(seed)
    layout, members = random_group(draw)
    given = StickyAssignor().assign(layout, members)
    assert_balanced(given, members)
    again = StickyAssignor().assign(layout, remembering(members, given))
    assert again == given
    leaves = draw.choice(members)
    rest = [each for each in remembering(members, given) if each.member_id != leaves.member_id]
    if rest:
        fewer = StickyAssignor().assign(layout, rest)
        assert_balanced(fewer, rest)
        if len({each.topics for each in members}) == 1:
            for name, places in fewer.items():
                assert set(given[name]) <= set(places), "a departure takes nothing from the others"


def random_group(draw: random.Random) -> tuple[TopicRacks, list[GroupMember]]:
    names = ["t0", "t1", "t2", "t3"][: draw.randint(1, 4)]
    all_racks = ["r0", "r1", "r2"]
    layout = {
        name: [
            frozenset(draw.sample(all_racks, draw.randint(1, 3)))
            for _ in range(draw.randint(1, 12))
        ]
        for name in names
    }
    uniform = draw.random() < 0.5
    members = [
        GroupMember(
            member_id=f"m{number}",
            topics=frozenset(
                names if uniform else draw.sample([*names, "no"], draw.randint(1, len(names)))
            ),
            rack_id=draw.choice([None, *all_racks]),
        )
        for number in range(draw.randint(1, 6))
    ]
    return layout, members


def remembering(members: list[GroupMember], given: Assignments) -> list[GroupMember]:
    return [
        GroupMember(
            member_id=each.member_id,
            topics=each.topics,
            rack_id=each.rack_id,
            user_data=encode_claim(Claim(tuple(given[each.member_id]), 1)),
        )
        for each in members
    ]


def assert_balanced(given: Assignments, members: list[GroupMember]) -> None:
    wants = {each.member_id: each.topics for each in members}
    for giver, places in given.items():
        for taker, fewer in given.items():
            if len(places) > len(fewer) + 1:
                assert not any(place.topic in wants[taker] for place in places), (giver, taker)
