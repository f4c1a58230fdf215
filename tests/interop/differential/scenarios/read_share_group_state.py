"""ReadShareGroupState: leaders read the state of share partitions and make their epoch known."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    begin_state,
    share_topic,
    state_batch,
    state_fields,
    write_state,
)

API = "ReadShareGroupState"


def part(partition: int = 0, leader_epoch: int = 0) -> dict[str, Any]:
    return {"partition": partition, "leader_epoch": leader_epoch}


def ask(s: Session, group: str, *parts: tuple[str, list[dict[str, Any]]]) -> None:
    s.call(API, 0, **state_fields(s, group, *parts))


def begun(s: Session) -> tuple[str, str]:
    """A group, and a topic whose partition 0 has state."""
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic, state_epoch=2, start_offset=5)
    return group, topic


@scenario
def with_batches(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [part()]))
    batches = [state_batch(5, 7, 0, 2), state_batch(8, 8, 2), state_batch(11, 20, 4, 5)]
    write_state(s, group, topic, state_epoch=2, start_offset=5, state_batches=batches)
    ask(s, group, (topic, [part()]))


@scenario(cases={"older": 3, "same": 4, "newer": 5, "any": -1, "negative": -2})
def leader_epochs(s: Session, leader_epoch: int) -> None:
    """Epoch 4 is known."""
    group, topic = begun(s)
    ask(s, group, (topic, [part(leader_epoch=4)]))
    ask(s, group, (topic, [part(leader_epoch=leader_epoch)]))
    ask(s, group, (topic, [part(leader_epoch=4)]))
    summary = state_fields(s, group, (topic, [part(leader_epoch=-1)]))
    s.call("ReadShareGroupStateSummary", 1, **summary)


@scenario
def no_state(s: Session) -> None:
    group = s.name("g")
    ask(s, group, (share_topic(s, group), [part()]))


@scenario
def several(s: Session) -> None:
    group = s.name("g")
    topic = share_topic(s, group, partitions=3)
    begin_state(s, group, topic, [0, 2])
    ask(s, group, (topic, [part(0), part(1), part(2)]))


@scenario(cases={"negative": -1, "behind_the_last": 3})
def unknown_partition(s: Session, partition: int) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [part(partition), part(0)]))


@scenario
def unknown_topic(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (s.name("absent"), [part()]), (topic, [part()]))


@scenario
def deleted_topic(s: Session) -> None:
    group, topic = begun(s)
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)
    s.until(
        lambda answer: answer["results"][0]["partitions"][0]["error_code"] != 0,
        API,
        0,
        **state_fields(s, group, (topic, [part()])),
    )
    ask(s, group, (topic, [part()]))


@scenario
def no_group(s: Session) -> None:
    _, topic = begun(s)
    ask(s, "", (topic, [part()]))


@scenario
def no_topics(s: Session) -> None:
    ask(s, s.name("g"))


@scenario
def no_partitions(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, []))
    ask(s, group, (topic, [part()]), (s.topic("other"), []))


@scenario
def a_partition_twice(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [part(), part()]))


@scenario
def a_topic_twice(s: Session) -> None:
    group, topic = begun(s)
    ask(s, group, (topic, [part()]), (topic, [part(1)]))
