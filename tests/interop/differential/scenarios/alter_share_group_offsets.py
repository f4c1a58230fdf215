"""AlterShareGroupOffsets: share partitions of a group without members begin elsewhere."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.groups import simple_commit, stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    ACCEPT,
    ShareConsumer,
    ShareMember,
    ack,
    await_group,
    configure,
    group_topic,
    lasting_topic,
    show_state,
)

API = "AlterShareGroupOffsets"


def ask(s: Session, group: str, *topics: tuple[str, dict[int, int]]) -> None:
    named = [
        {
            "topic_name": name,
            "partitions": [
                {"partition_index": index, "start_offset": offset}
                for index, offset in offsets.items()
            ],
        }
        for name, offsets in topics
    ]
    s.call(API, 0, group_id=group, topics=named)


def show(s: Session, group: str) -> None:
    s.call("DescribeShareGroupOffsets", 1, groups=[{"group_id": group, "topics": None}])
    s.call("ShareGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)


def consumed(s: Session, *, disconnects: bool = True) -> tuple[str, str, ShareMember]:
    """A group that has consumed two of six records, and its only member; its consumer is gone."""
    group = s.name("g")
    topic = group_topic(s, group)
    configure(s, group, share_auto_offset_reset="earliest")
    s.fill(topic, *[batch(each) for each in "abcdef"])
    member = ShareMember(s, group)
    member.quiet_join(topic)
    a = ShareConsumer(s, group, "c")
    a.quiet_fetch((topic, 0))
    a.quiet_acknowledge({(topic, 0): [ack(0, 1, ACCEPT)]})
    a.peer.quiet("ShareFetch", 1, **a.fetch_fields(share_session_epoch=-1))
    if disconnects:
        # Kafka's leader forgets the share partition when the last connection is closed.
        a.peer.close()
        time.sleep(0.5)
    return group, topic, member


@scenario(cases={"back": 0, "forth": 5, "past_the_end": 100, "unset": -1, "negative": -9})
def of_an_empty_group(s: Session, offset: int) -> None:
    group, topic, member = consumed(s)
    member.leave()
    ask(s, group, (topic, {0: offset}))
    show(s, group)
    show_state(s, group, topic)


@scenario(cases={"disconnected": True, "connected": False})
def consumption_goes_on_there(s: Session, disconnects: bool) -> None:
    group, topic, member = consumed(s, disconnects=disconnects)
    member.leave()
    ask(s, group, (topic, {0: 4}))
    b = ShareConsumer(s, group, "b")
    b.fetch(1, (topic, 0))
    b.acknowledge(1, {(topic, 0): [ack(4, 5, ACCEPT)]})
    show(s, group)


@scenario
def with_members(s: Session) -> None:
    group, topic, _ = consumed(s)
    ask(s, group, (topic, {0: 0}))


@scenario
def unknown_group(s: Session) -> None:
    """It is made."""
    group = s.name("g")
    topic = group_topic(s, group, partitions=2)
    await_group(s, group)
    ask(s, group, (topic, {0: 3, 1: 4}))
    show(s, group)
    show_state(s, group, topic)


@scenario
def empty_group_id(s: Session) -> None:
    ask(s, "", (lasting_topic(s), {0: 0}))


@scenario
def groups_of_other_kinds(s: Session) -> None:
    topic = lasting_topic(s)
    classic = stable_group(s, s.name("classic"))
    simple_commit(s, s.name("simple"), topic)
    ask(s, classic.group, (topic, {0: 0}))
    ask(s, s.name("simple"), (topic, {0: 0}))


@scenario
def a_topic_that_it_never_read(s: Session) -> None:
    group, _, member = consumed(s)
    member.leave()
    other = group_topic(s, group, "other", partitions=2)
    ask(s, group, (other, {1: 7}))
    show(s, group)


@scenario
def unknown_topics_and_partitions(s: Session) -> None:
    group, topic, member = consumed(s)
    member.leave()
    ask(s, group, (s.name("absent"), {0: 1, 3: 2}), (topic, {0: 1, 5: 2}))
    show(s, group)


@scenario
def negative_partition(s: Session) -> None:
    group, topic, member = consumed(s)
    member.leave()
    ask(s, group, (topic, {0: 1, -1: 3}))


@scenario
def only_what_is_unknown(s: Session) -> None:
    """A group that is not there is made all the same, or not."""
    group = s.name("g")
    topic = group_topic(s, group)
    await_group(s, group)
    ask(s, group, (s.name("absent"), {0: 1}))
    show(s, group)
    ask(s, group, (topic, {7: 1}))
    show(s, group)


@scenario
def nothing(s: Session) -> None:
    group, topic, member = consumed(s)
    member.leave()
    ask(s, group)
    ask(s, group, (topic, {}))
    show(s, group)


@scenario
def nothing_of_an_unknown_group(s: Session) -> None:
    group = s.name("g")
    await_group(s, group)
    ask(s, group)
    show(s, group)


@scenario
def the_same_twice(s: Session) -> None:
    group, topic, member = consumed(s)
    member.leave()
    parts: list[dict[str, Any]] = [
        {"partition_index": 0, "start_offset": 3},
        {"partition_index": 0, "start_offset": 4},
    ]
    s.call(API, 0, group_id=group, topics=[{"topic_name": topic, "partitions": parts}])
    ask(s, group, (topic, {0: 1}), (topic, {0: 2}))
