"""OffsetDelete: forgetting committed offsets of topics nobody subscribes to."""

from __future__ import annotations

from tests.interop.differential.groups import (
    Member,
    describe,
    simple_commit,
    stable_group,
    subscription,
)
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def forget(s: Session, group: str, *topics: tuple[str, list[int]]) -> None:
    asked = [
        {"name": name, "partitions": [{"partition_index": each} for each in partitions]}
        for name, partitions in topics
    ]
    s.call("OffsetDelete", 0, group_id=group, topics=asked)


def look(s: Session, group: str) -> None:
    s.call("OffsetFetch", 7, group_id=group, topics=None)


@scenario
def empty_group(s: Session) -> None:
    topic = s.topic(partitions=2)
    group = s.name("g")
    for partition in (0, 1):
        simple_commit(s, group, topic, 5, partition)
    forget(s, group, (topic, [0]))
    look(s, group)
    forget(s, group, (topic, [1]))
    look(s, group)
    describe(s, group, 6)


@scenario
def not_committed(s: Session) -> None:
    topic = s.topic(partitions=2)
    group = s.name("g")
    simple_commit(s, group, topic)
    forget(s, group, (topic, [1, 9]), (s.name("absent"), [0]))
    look(s, group)


@scenario
def unknown_group(s: Session) -> None:
    forget(s, s.name("absent"), (s.topic(), [0]))


@scenario
def empty_group_id(s: Session) -> None:
    forget(s, "", (s.topic(), [0]))


@scenario
def nothing(s: Session) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    forget(s, group)
    forget(s, group, (s.topic("other"), []))


@scenario
def stable_group_subscribed(s: Session) -> None:
    topic, other = s.topic(), s.topic("other")
    member = Member(s, s.name("g"))
    member.protocols = (("range", subscription(topic)),)
    member.quiet_join(5)
    member.quiet_sync([(member, b"")])
    for each in (topic, other):
        fields = member.commit_fields(7, each)
        member.peer.quiet("OffsetCommit", 7, **fields)
    forget(s, member.group, (topic, [0]), (other, [0]))
    look(s, member.group)


@scenario
def stable_group_of_another_kind(s: Session) -> None:
    """A group whose subscriptions cannot be read cannot be told apart from a subscribed one."""
    topic = s.topic()
    member = Member(s, s.name("g"))
    member.protocol_type = "connect"
    member.protocols = (("default", b"x"),)
    member.quiet_join(5)
    member.quiet_sync([(member, b"")])
    member.peer.quiet("OffsetCommit", 7, **member.commit_fields(7, topic))
    forget(s, member.group, (topic, [0]))
    look(s, member.group)


@scenario
def during_a_rebalance(s: Session) -> None:
    topic = s.topic()
    group = s.name("g")
    leader = stable_group(s, group)
    leader.peer.quiet("OffsetCommit", 7, **leader.commit_fields(7, topic))
    other = Member(s, group, "b")
    other.post_join(2)
    leader.await_rebalance()
    forget(s, group, (topic, [0]))
    leader.quiet_join(5)
    other.joined()


@scenario
def same_partition_twice(s: Session) -> None:
    topic = s.topic()
    group = s.name("g")
    simple_commit(s, group, topic)
    forget(s, group, (topic, [0, 0]))
    look(s, group)


@scenario(cases={"empty": "", "slash": "a/b"})
def illegal_topic_name(s: Session, name: str) -> None:
    group = s.name("g")
    simple_commit(s, group, s.topic())
    forget(s, group, (name, [0]))
