"""KIP-392: which replica a consumer is sent to."""

from __future__ import annotations

from millstream.model.broker import BrokerId
from millstream.replication.read_replica import ReplicaView, preferred_read_replica

LEADER = ReplicaView(BrokerId(1), "a", 0, 100)
NEAR = ReplicaView(BrokerId(2), "b", 0, 90)
NEARER = ReplicaView(BrokerId(3), "b", 20, 95)
FAR = ReplicaView(BrokerId(4), "c", 0, 100)


def choose(rack: str, offset: int, *followers: ReplicaView) -> int | None:
    return preferred_read_replica(rack, offset, LEADER, followers)


def test_the_follower_in_the_rack_that_has_come_furthest() -> None:
    assert choose("b", 50, NEAR, NEARER, FAR) == 3


def test_a_follower_must_hold_the_offset() -> None:
    assert choose("b", 92, NEAR, NEARER) == 3
    assert choose("b", 10, NEAR, NEARER) == 2
    assert choose("b", 96, NEAR, NEARER) is None


def test_the_leader_is_read_without_a_replica_in_the_rack() -> None:
    assert choose("a", 50, NEAR, FAR) is None
    assert choose("z", 50, NEAR, FAR) is None
    assert choose("", 50, NEAR, FAR) is None


def test_of_two_alike_the_one_that_caught_up_last() -> None:
    late = ReplicaView(BrokerId(5), "b", 0, 95, caught_up_ago_ms=10)
    assert choose("b", 50, late, NEARER) == 3
