"""Plans of replicas: what has to go goes, the rest stays, and it comes out even."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.client.placement import bytes_to_copy, plan_placement
from millstream.model.topic import TopicPartition


def places(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in range(count)]


def test_nothing_moves_when_all_is_even() -> None:
    present = {place: (1 + i % 3, 1 + (i + 1) % 3) for i, place in enumerate(places(6))}
    assert plan_placement(present, [1, 2, 3]) == {}


def test_a_new_broker_gets_its_share_and_no_more_is_copied_than_that() -> None:
    present = dict.fromkeys(places(8), (1, 2, 3))
    plan = plan_placement(present, [1, 2, 3, 4])
    assert len(plan) == 6
    assert all(4 in target for target in plan.values())
    sizes = dict.fromkeys(present, 100)
    assert bytes_to_copy(present, plan, sizes) == 600


def test_a_broker_is_emptied() -> None:
    present = dict.fromkeys(places(6), (1, 2, 3))
    plan = plan_placement(present, [2, 3, 4])
    assert len(plan) == 6
    assert all(set(target) == {2, 3, 4} for target in plan.values())
    assert {target[0] for target in plan.values()} == {2, 3, 4}


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(ValueError, match="3 replicas do not fit on 2 brokers"):
        plan_placement(dict.fromkeys(places(1), (1, 2, 3)), [1, 2])


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], list[int]]:
    before = draw(st.lists(st.integers(1, 8), min_size=1, max_size=8, unique=True))
    after = draw(st.lists(st.integers(1, 8), min_size=1, max_size=8, unique=True))
    factor = draw(st.integers(1, min(len(before), len(after))))
    present = {
        place: tuple(draw(st.permutations(before))[:factor])
        for place in places(draw(st.integers(1, 12)))
    }
    return present, after


@given(clusters())
def test_every_plan_is_even_and_whole(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], list[int]],
) -> None:
    present, brokers = cluster
    final = {**present, **plan_placement(present, brokers)}
    for place, replicas in final.items():
        assert len(set(replicas)) == len(replicas) == len(present[place])
        assert set(replicas) <= set(brokers)
    load = Counter(each for replicas in final.values() for each in replicas)
    counts = [load.get(each, 0) for each in brokers]
    assert max(counts) - min(counts) <= 1


@given(clusters())
def test_racks_are_not_given_up(
    cluster: tuple[dict[TopicPartition, tuple[int, ...]], list[int]],
) -> None:
    present, brokers = cluster
    racks = {broker: f"r{broker % 2}" for broker in range(1, 9)}
    final = {**present, **plan_placement(present, brokers, racks)}
    for place, replicas in final.items():
        kept = {racks[each] for each in present[place] if each in brokers}
        assert len({racks[each] for each in replicas}) >= len(kept)


def test_partitions_get_the_number_of_replicas_that_is_wanted() -> None:
    present = {TopicPartition("t", 0): (2, 1), TopicPartition("t", 1): (3, 2)}
    assert plan_placement(present, [1], replication_factor=1) == {
        TopicPartition("t", 0): (1,),
        TopicPartition("t", 1): (1,),
    }
    grown = plan_placement(present, [1, 2, 3], replication_factor=3)
    assert {frozenset(each) for each in grown.values()} == {frozenset({1, 2, 3})}
    with pytest.raises(ValueError, match="3 replicas do not fit on 2"):
        plan_placement(present, [1, 2], replication_factor=3)
