"""Keys, round robin, and the partition that stays for a batch and is then chosen by load."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.unit.client.core.producer.test_sender import World

from millstream.client.core.producer.partitioner import (
    KeyPartitioner,
    RoundRobin,
    StickyChoice,
    chosen,
)
from millstream.client.partitioner import partition_for_key
from millstream.model.errors import ConfigError


def sticky(seed: int = 0, batch_size: int = 100) -> StickyChoice:
    return StickyChoice(random.Random(seed).random, batch_size)


def test_it_stays_for_as_many_bytes_as_a_batch_has() -> None:
    choice = sticky()
    first = choice.partition(50, lambda: [])
    choice.produced(60, 50, lambda: [])
    assert choice.partition(50, lambda: []) == first
    choice.produced(60, 50, lambda: [])
    assert len({choice.partition(50, lambda: []) for _ in range(5)}) == 1
    seen = set()
    for _ in range(200):
        choice.produced(100, 50, lambda: [])
        seen.add(choice.partition(50, lambda: []))
    assert len(seen) > 40


def test_only_partitions_with_a_leader_are_chosen() -> None:
    choice = sticky()
    seen = set()
    for _ in range(100):
        seen.add(choice.partition(10, lambda: [2, 5]))
        choice.produced(100, 10, lambda: [2, 5])
    assert seen == {2, 5}


def test_less_goes_where_batches_wait() -> None:
    choice = sticky()
    choice.weigh({0: 0, 1: 3, 2: 3}, 3)
    counts: Counter[int] = Counter()
    for _ in range(6000):
        counts[choice.partition(3, lambda: [])] += 1
        choice.produced(100, 3, lambda: [])
    # As in KIP-794: the longest queue + 1 less the own length, so 4 : 1 : 1.
    assert counts[0] == pytest.approx(4000, rel=0.1)
    assert counts[1] == pytest.approx(1000, rel=0.2)


def test_equal_queues_are_equal() -> None:
    choice = sticky()
    choice.weigh({0: 3, 1: 3}, 2)
    counts: Counter[int] = Counter()
    for _ in range(2000):
        counts[choice.partition(2, lambda: [])] += 1
        choice.produced(100, 2, lambda: [])
    assert counts[0] == pytest.approx(1000, rel=0.1)


def test_a_partition_that_is_gone_is_chosen_no_more() -> None:
    choice = sticky()
    choice.current = 7
    assert choice.partition(3, lambda: []) < 3


def test_round_robin_counts_each_topic() -> None:
    turns = RoundRobin()
    assert [turns("a", b"k", None, 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert turns("b", None, None, 3) == 0


def test_keys_are_remembered_and_forgotten() -> None:
    keys = KeyPartitioner()
    for number in range(25_000):
        key = b"key %d" % number
        assert keys.partition(key, 7) == partition_for_key(key, 7)
    assert keys.partition(b"key 1", 7) == partition_for_key(b"key 1", 7)
    long = bytes(1000)
    assert keys.partition(long, 7) == partition_for_key(long, 7)
    assert long not in keys._known


def test_what_the_setting_takes() -> None:
    assert chosen(None) is chosen("default") is None
    assert isinstance(chosen("round_robin"), RoundRobin)
    with pytest.raises(ConfigError):
        chosen("murmur3")


def test_records_without_a_key_go_batch_by_batch() -> None:
    world = World(partitions=4, batch_size=500, linger_ms=5)
    for number in range(200):
        world.send(b"%050d" % number, partition=None)
    world.flush()
    runs = [len(world.topic.partitions[index].batches) for index in range(4)]
    assert sum(runs) < 40
    assert sum(each > 0 for each in runs) >= 2
    assert sum(each.end_offset for each in world.topic.partitions) == 200


def test_round_robin_spreads_single_records() -> None:
    world = World(partitions=4, partitioner="round_robin")
    for number in range(40):
        world.send(b"%d" % number, partition=None, key=b"same")
    world.flush()
    assert [each.end_offset for each in world.topic.partitions] == [10, 10, 10, 10]


def test_keys_may_be_ignored() -> None:
    world = World(partitions=4, partitioner_ignore_keys=True, batch_size=100_000, linger_ms=5)
    for number in range(20):
        world.send(b"v", partition=None, key=b"%d" % number)
    world.flush()
    assert sorted(each.end_offset for each in world.topic.partitions) == [0, 0, 0, 20]


def test_a_broker_that_cannot_be_asked_gets_nothing_new() -> None:
    world = World(
        brokers=2,
        partitions=2,
        batch_size=200,
        partitioner_availability_timeout_ms=100,
        delivery_timeout_ms=60_000,
        request_timeout_ms=1000,
    )
    world.send(b"a", 0)
    world.send(b"b", 1)
    world.flush()
    world.cluster.brokers[2].stop()
    for number in range(300):
        world.send(b"%050d" % number, partition=None)
        world.loop.advance(5)
    waiting = len(world.core.accumulator.topic("t").queues[1].batches)
    assert waiting < 40
    assert world.topic.partitions[0].end_offset > 150


def test_weights_of_a_topic_that_had_more_partitions_choose_none_of_those() -> None:
    choice = StickyChoice(lambda: 0.9, 100)
    choice.weigh({0: 3, 1: 1, 2: 0}, 3)
    assert choice.partition(3, lambda: [0, 1, 2]) == 2
    assert choice.partition(1, lambda: [0]) == 0


def test_a_choice_is_not_disturbed_by_weights_that_change_during_it() -> None:
    """Users' threads choose while the client's thread weighs."""
    weighing: list[bool] = []

    def random() -> float:
        if weighing:
            busy.weigh({}, 0)
        return 0.5

    busy = StickyChoice(random, 100)
    busy.weigh({0: 1, 1: 5}, 2)
    weighing.append(True)
    assert busy.partition(2, lambda: [0, 1]) in (0, 1)
