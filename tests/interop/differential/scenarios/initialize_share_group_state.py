"""InitializeShareGroupState: the group coordinator begins the state of share partitions."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    begin_state,
    share_topic,
    show_state,
    state_batch,
    state_fields,
    write_state,
)

API = "InitializeShareGroupState"


def part(partition: int = 0, *, state_epoch: int = 0, start_offset: int = 0) -> dict[str, Any]:
    return {"partition": partition, "state_epoch": state_epoch, "start_offset": start_offset}


def ask(s: Session, group: str, *parts: tuple[str, list[dict[str, Any]]]) -> None:
    s.call(API, 0, **state_fields(s, group, *parts))


@scenario(cases={"unset": -1, "zero": 0, "far": 12_345, "negative": -7})
def start_offsets(s: Session, start_offset: int) -> None:
    group = s.name("g")
    topic = share_topic(s, group)
    ask(s, group, (topic, [part(start_offset=start_offset)]))
    show_state(s, group, topic)


@scenario
def several_partitions(s: Session) -> None:
    group = s.name("g")
    one, two = share_topic(s, group, partitions=2), share_topic(s, group, "other")
    ask(s, group, (one, [part(0, start_offset=5), part(1, start_offset=6)]), (two, [part()]))
    show_state(s, group, one, partition=1)


@scenario(cases={"older": 2, "same": 3, "newer": 4, "any": -1, "negative": -2})
def again_with_a_state_epoch(s: Session, state_epoch: int) -> None:
    """A state of epoch 3 is there already, with something in it."""
    group = s.name("g")
    topic = share_topic(s, group)
    begin_state(s, group, topic, state_epoch=3, start_offset=1)
    write_state(
        s, group, topic, state_epoch=3, start_offset=4, state_batches=[state_batch(4, 6, 2)]
    )
    ask(s, group, (topic, [part(state_epoch=state_epoch, start_offset=9)]))
    show_state(s, group, topic)


@scenario(cases={"negative": -1, "behind_the_last": 3})
def unknown_partition(s: Session, partition: int) -> None:
    group = s.name("g")
    ask(s, group, (share_topic(s, group), [part(partition), part(0)]))


@scenario
def unknown_topic(s: Session) -> None:
    group = s.name("g")
    ask(s, group, (s.name("absent"), [part()]), (share_topic(s, group), [part()]))


@scenario
def zero_topic_id(s: Session) -> None:
    zero = {"topic_id": "0" * 32, "partitions": [part()]}
    s.call(API, 0, group_id=s.name("g"), topics=[zero])


@scenario
def no_group(s: Session) -> None:
    ask(s, "", (s.topic(), [part()]))


@scenario
def no_topics(s: Session) -> None:
    ask(s, s.name("g"))


@scenario
def no_partitions(s: Session) -> None:
    group = s.name("g")
    topic, other = share_topic(s, group), share_topic(s, group, "other")
    ask(s, group, (topic, []))
    ask(s, group, (topic, [part()]), (other, []))


@scenario
def a_partition_twice(s: Session) -> None:
    group = s.name("g")
    topic = share_topic(s, group)
    ask(s, group, (topic, [part(start_offset=3), part(start_offset=4)]))
    show_state(s, group, topic)


@scenario
def a_topic_twice(s: Session) -> None:
    group = s.name("g")
    topic = share_topic(s, group, partitions=2)
    ask(s, group, (topic, [part(0)]), (topic, [part(1)]))
