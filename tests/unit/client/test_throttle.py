"""Which replicas a reassignment limits."""

from __future__ import annotations

from millstream.client.throttle import plan_throttle
from millstream.model.topic import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_leaders_are_those_there_and_followers_those_added() -> None:
    present = {A0: (1, 2), A1: (2, 3), B0: (1,)}
    planned = {A0: (2, 4), A1: (5, 3), B0: (4,)}
    limits = plan_throttle(present, planned)
    assert limits.brokers == (1, 2, 3, 4, 5)
    assert limits.leader_replicas == {"a": "0:1,0:2,1:2,1:3", "b": "0:1"}
    assert limits.follower_replicas == {"a": "0:4,1:5", "b": "0:4"}


def test_what_copies_nothing_is_not_limited() -> None:
    limits = plan_throttle({A0: (1, 2), A1: (1, 2)}, {A0: (2, 1), A1: (1,)})
    assert limits.brokers == ()
    assert limits.leader_replicas == {}
