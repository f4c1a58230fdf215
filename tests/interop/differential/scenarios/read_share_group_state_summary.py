"""ReadShareGroupStateSummary: where share partitions start, for the group coordinator."""

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

API = "ReadShareGroupStateSummary"


def part(partition: int = 0, leader_epoch: int = -1) -> dict[str, Any]:
    return {"partition": partition, "leader_epoch": leader_epoch}


def ask(s: Session, version: int, group: str, *parts: tuple[str, list[dict[str, Any]]]) -> None:
    s.call(API, version, **state_fields(s, group, *parts))


@scenario(versions=API, cases={"unset": -1, "set": 5})
def as_it_begins(s: Session, start_offset: int, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic, state_epoch=2, start_offset=start_offset)
    ask(s, version, group, (topic, [part()]))


@scenario(versions=API)
def after_writes(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic)
    write_state(
        s,
        group,
        topic,
        start_offset=5,
        delivery_complete_count=3,
        state_batches=[state_batch(6, 8, 2)],
    )
    ask(s, version, group, (topic, [part()]))


@scenario(versions=API, cases={"older": 3, "newer": 5, "negative": -2})
def leader_epochs(s: Session, leader_epoch: int, version: int) -> None:
    """Epoch 4 is known."""
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic)
    read = state_fields(s, group, (topic, [part(leader_epoch=4)]))
    s.quiet("ReadShareGroupState", 0, **read)
    ask(s, version, group, (topic, [part(leader_epoch=leader_epoch)]))
    ask(s, version, group, (topic, [part()]))


@scenario(versions=API)
def no_state(s: Session, version: int) -> None:
    group = s.name("g")
    ask(s, version, group, (share_topic(s, group), [part()]))


@scenario(versions=API, cases={"negative": -1, "behind_the_last": 3})
def unknown_partition(s: Session, partition: int, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic)
    ask(s, version, group, (topic, [part(partition), part()]))


@scenario(versions=API)
def unknown_topic(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic)
    ask(s, version, group, (s.name("absent"), [part()]), (topic, [part()]))


@scenario
def no_group(s: Session) -> None:
    ask(s, 1, "", (s.topic(), [part()]))


@scenario
def no_topics(s: Session) -> None:
    ask(s, 1, s.name("g"))


@scenario
def no_partitions(s: Session) -> None:
    ask(s, 1, s.name("g"), (s.topic(), []))


@scenario
def a_partition_twice(s: Session) -> None:
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic)
    ask(s, 1, group, (topic, [part(), part()]))
