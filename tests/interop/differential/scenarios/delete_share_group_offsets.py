"""DeleteShareGroupOffsets: a share group without members forgets topics."""

from __future__ import annotations

import time

from tests.interop.differential.batches import batch
from tests.interop.differential.groups import simple_commit, stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    ShareMember,
    await_group,
    begin_state,
    configure,
    group_topic,
    lasting_topic,
    show_state,
)

API = "DeleteShareGroupOffsets"


def ask(s: Session, group: str, *topics: str) -> None:
    s.call(API, 0, group_id=group, topics=[{"topic_name": name} for name in topics])


def show(s: Session, group: str) -> None:
    s.call("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])


def joined(s: Session, partitions: int = 1) -> tuple[str, str, ShareMember]:
    """A group that reads a topic, and its only member."""
    group = s.name("g")
    topic = group_topic(s, group, partitions=partitions)
    configure(s, group, share_auto_offset_reset="earliest")
    s.fill(topic, batch("a"))
    member = ShareMember(s, group)
    member.quiet_join(topic)
    return group, topic, member


@scenario
def is_forgotten(s: Session) -> None:
    group, topic, member = joined(s, partitions=2)
    member.leave()
    show(s, group)
    ask(s, group, topic)
    show(s, group)
    show_state(s, group, topic)
    ask(s, group, topic)
    s.call("ShareGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)


@scenario
def begins_again(s: Session) -> None:
    group, topic, member = joined(s)
    member.leave()
    ask(s, group, topic)
    again = ShareMember(s, group, "again")
    again.quiet_join(topic)
    show(s, group)


@scenario
def with_members(s: Session) -> None:
    group, topic, _ = joined(s)
    ask(s, group, topic)
    show(s, group)


@scenario
def one_of_two(s: Session) -> None:
    group, topic, member = joined(s)
    member.leave()
    other = group_topic(s, group, "other")
    s.call(
        "AlterShareGroupOffsets",
        0,
        group_id=group,
        topics=[{"topic_name": other, "partitions": [{"partition_index": 0, "start_offset": 3}]}],
    )
    ask(s, group, topic)
    show(s, group)


@scenario
def unknown_topics(s: Session) -> None:
    """One that is not there, one that the group never read, and one that it did."""
    group, topic, member = joined(s)
    member.leave()
    ask(s, group, s.name("absent"), group_topic(s, group, "other"), topic)
    ask(s, group, s.name("absent"))


@scenario
def state_that_the_group_does_not_know(s: Session) -> None:
    group, _, member = joined(s)
    member.leave()
    other = group_topic(s, group, "other")
    begin_state(s, group, other)
    ask(s, group, other)
    show_state(s, group, other)


@scenario
def unknown_group(s: Session) -> None:
    group = s.name("nobody")
    await_group(s, group)
    ask(s, group, lasting_topic(s))
    ask(s, group)


@scenario
def empty_group_id(s: Session) -> None:
    ask(s, "", lasting_topic(s))


@scenario
def groups_of_other_kinds(s: Session) -> None:
    topic = lasting_topic(s)
    classic = stable_group(s, s.name("classic"))
    simple_commit(s, s.name("simple"), topic)
    ask(s, classic.group, topic)
    ask(s, s.name("simple"), topic)


@scenario
def nothing(s: Session) -> None:
    group, _, member = joined(s)
    ask(s, group)
    member.leave()
    ask(s, group)
    show(s, group)


@scenario
def the_same_twice(s: Session) -> None:
    group, topic, member = joined(s)
    member.leave()
    ask(s, group, topic, topic)


@scenario
def with_its_group(s: Session) -> None:
    """DeleteGroups takes the state along."""
    group, topic, member = joined(s)
    s.call("DeleteGroups", 2, groups_names=[group])
    member.leave()
    s.call("DeleteGroups", 2, groups_names=[group])
    show(s, group)
    show_state(s, group, topic)


@scenario
def the_topic_is_deleted(s: Session) -> None:
    group, topic, member = joined(s)
    member.leave()
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)
    time.sleep(1)
    ask(s, group, topic)
    show(s, group)
