"""DescribeShareGroupOffsets: where share groups are, and how much is left."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.groups import simple_commit, stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    ACCEPT,
    RELEASE,
    ShareConsumer,
    ShareMember,
    ack,
    await_group,
    begin_state,
    configure,
    group_topic,
    write_state,
)

API = "DescribeShareGroupOffsets"


def wanted(group: str, *topics: tuple[str, list[int]]) -> dict[str, Any]:
    named = [{"topic_name": name, "partitions": indexes} for name, indexes in topics]
    return {"group_id": group, "topics": named}


def ask(s: Session, version: int, *groups: dict[str, Any]) -> None:
    s.call(API, version, groups=list(groups))


@scenario(versions=API)
def as_records_are_consumed(s: Session, version: int) -> None:
    group = s.name("g")
    topic = group_topic(s, group, partitions=2)
    configure(s, group, share_auto_offset_reset="earliest")
    s.fill(topic, *[batch(each) for each in "abcdef"])
    member = ShareMember(s, group)
    member.quiet_join(topic)
    ask(s, version, {"group_id": group, "topics": None})
    a = ShareConsumer(s, group, "c")
    a.quiet_fetch((topic, 0))
    a.quiet_acknowledge({(topic, 0): [ack(0, 1, ACCEPT), ack(3, 3, ACCEPT), ack(4, 4, RELEASE)]})
    ask(s, version, {"group_id": group, "topics": None})
    ask(s, version, wanted(group, (topic, [1, 0])))
    member.leave()
    ask(s, version, {"group_id": group, "topics": None})


@scenario(versions=API)
def state_that_the_group_does_not_know(s: Session, version: int) -> None:
    """Named partitions are asked for at their share coordinator."""
    group = s.name("g")
    topic = group_topic(s, group)
    await_group(s, group)
    begin_state(s, group, topic, start_offset=2, state_epoch=3)
    s.fill(topic, *[batch(each) for each in "abcdef"])
    ask(s, version, wanted(group, (topic, [0])), {"group_id": group, "topics": None})
    write_state(s, group, topic, state_epoch=3, start_offset=3, delivery_complete_count=2)
    ask(s, version, wanted(group, (topic, [0])))


@scenario(versions=API, cases={"past_the_end": 50, "unset": -1, "negative": -5})
def start_offset(s: Session, offset: int, version: int) -> None:
    group = s.name("g")
    topic = group_topic(s, group)
    begin_state(s, group, topic, start_offset=offset)
    s.fill(topic, batch("a"))
    ask(s, version, wanted(group, (topic, [0])))


@scenario(versions=API)
def unknown_group(s: Session, version: int) -> None:
    group = s.name("nobody")
    topic = group_topic(s, group)
    await_group(s, group)
    ask(s, version, wanted(group, (topic, [0])))
    ask(s, version, {"group_id": group, "topics": None})
    ask(s, version, {"group_id": group, "topics": []})


@scenario(versions=API)
def empty_group_id(s: Session, version: int) -> None:
    topic = group_topic(s, s.name("g"))
    await_group(s, "")
    ask(s, version, {"group_id": "", "topics": None})
    ask(s, version, wanted("", (topic, [0])))


@scenario(versions=API)
def groups_of_other_kinds(s: Session, version: int) -> None:
    topic = group_topic(s, s.name("g"))
    classic = stable_group(s, s.name("classic"))
    simple_commit(s, s.name("simple"), topic)
    for group in (classic.group, s.name("simple")):
        ask(s, version, wanted(group, (topic, [0])))
        ask(s, version, {"group_id": group, "topics": None})


@scenario(versions=API)
def unknown_topics_and_partitions(s: Session, version: int) -> None:
    group = s.name("g")
    topic = group_topic(s, group)
    begin_state(s, group, topic)
    ask(s, version, wanted(group, (s.name("absent"), [0, 1]), (topic, [0, 7])))


@scenario(versions=API)
def negative_partition(s: Session, version: int) -> None:
    group = s.name("g")
    topic = group_topic(s, group)
    ask(s, version, wanted(group, (topic, [0, -1])))


@scenario(versions=API)
def without_partitions(s: Session, version: int) -> None:
    group = s.name("g")
    topic = group_topic(s, group)
    begin_state(s, group, topic)
    other = group_topic(s, group, "other")
    ask(s, version, wanted(group, (s.name("absent"), [])))
    ask(s, version, wanted(group, (topic, [])))
    ask(s, version, wanted(group, (topic, [0]), (other, [])))


@scenario(versions=API)
def the_same_twice(s: Session, version: int) -> None:
    group = s.name("g")
    topic = group_topic(s, group)
    begin_state(s, group, topic)
    ask(s, version, wanted(group, (topic, [0, 0])))
    ask(s, version, wanted(group, (topic, [0])), wanted(group, (topic, [0])))


@scenario(versions=API)
def several_groups(s: Session, version: int) -> None:
    topic = group_topic(s, s.name("g"))
    for label in ("one", "two"):
        begin_state(s, s.name(label), topic, start_offset=len(label))
    ask(s, version, wanted(s.name("one"), (topic, [0])), wanted(s.name("two"), (topic, [0])))
    ask(s, version)
