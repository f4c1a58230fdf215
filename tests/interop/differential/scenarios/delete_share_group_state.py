"""DeleteShareGroupState: the group coordinator forgets the state of share partitions."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    begin_state,
    share_topic,
    show_state,
    state_fields,
)

API = "DeleteShareGroupState"


def ask(s: Session, group: str, *parts: tuple[str, list[int]]) -> None:
    data = [(topic, [{"partition": index} for index in indexes]) for topic, indexes in parts]
    s.call(API, 0, **state_fields(s, group, *data))


def begun(s: Session) -> tuple[str, str]:
    """A group, and a topic whose partition 0 has state."""
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic, state_epoch=2, start_offset=5)
    return group, topic


@scenario
def is_forgotten(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [0]))
    show_state(s, group, topic)
    ask(s, group, (topic, [0]))


@scenario(cases={"an_older_epoch": 1, "a_newer_epoch": 3})
def begins_again(s: Session, state_epoch: int) -> None:
    """The epochs that were known are forgotten too."""
    group, topic = begun(s)
    read: dict[str, Any] = state_fields(s, group, (topic, [{"partition": 0, "leader_epoch": 9}]))
    s.call("ReadShareGroupState", 0, **read)
    ask(s, group, (topic, [0]))
    data = [{"partition": 0, "state_epoch": state_epoch, "start_offset": 1}]
    s.call("InitializeShareGroupState", 0, **state_fields(s, group, (topic, data)))
    show_state(s, group, topic)


@scenario
def of_one_group_only(s: Session) -> None:
    group, topic = begun(s)
    begin_state(s, s.name("other"), topic, start_offset=3)
    ask(s, group, (topic, [0]))
    show_state(s, s.name("other"), topic)


@scenario
def no_state(s: Session) -> None:
    group = s.name("g")
    ask(s, group, (share_topic(s, group), [0]))


@scenario(cases={"negative": -1, "behind_the_last": 3})
def unknown_partition(s: Session, partition: int) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [partition, 0]))


@scenario
def unknown_topic(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (s.name("absent"), [0]), (topic, [0]))


@scenario
def no_group(s: Session) -> None:
    _, topic = begun(s)
    ask(s, "", (topic, [0]))


@scenario
def no_topics(s: Session) -> None:
    ask(s, s.name("g"))


@scenario
def no_partitions(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, []))
    ask(s, group, (topic, [0]), (s.topic("other"), []))
    show_state(s, group, topic)


@scenario
def a_partition_twice(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [0, 0]))
