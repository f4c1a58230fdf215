"""WriteShareGroupState: leaders store what has changed of share partitions."""

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
    write_data,
)

API = "WriteShareGroupState"


def ask(s: Session, version: int, group: str, *parts: tuple[str, list[dict[str, Any]]]) -> None:
    s.call(API, version, **state_fields(s, group, *parts))


def begun(s: Session) -> tuple[str, str]:
    """A group, and a topic whose partition 0 has state of epoch 2 and leader epoch 0."""
    group, topic = s.name("g"), s.topic()
    begin_state(s, group, topic, state_epoch=2, start_offset=5)
    show_state(s, group, topic)
    return group, topic


def data(**more: Any) -> dict[str, Any]:
    return write_data(**({"state_epoch": 2} | more))


@scenario(versions=API)
def start_offset_and_count(s: Session, version: int) -> None:
    group, topic = begun(s)
    ask(s, version, group, (topic, [data(start_offset=7, delivery_complete_count=3)]))
    show_state(s, group, topic)


STATES = {
    "one": [[state_batch(5, 9, 2)]],
    "hole": [[state_batch(5, 6, 2), state_batch(9, 9, 4, 2)]],
    "neighbours": [[state_batch(5, 6, 2), state_batch(7, 8, 2)]],
    "out_of_order": [[state_batch(9, 9, 4, 2), state_batch(5, 6, 2)]],
    "below_the_start": [[state_batch(0, 9, 2)]],
    "overwritten": [[state_batch(5, 9, 0)], [state_batch(6, 7, 2)]],
    "overwritten_by_more": [[state_batch(6, 7, 2)], [state_batch(5, 9, 0, 2)]],
    "a_lower_count": [[state_batch(5, 9, 0, 3)], [state_batch(5, 9, 0, 2)]],
    "a_lower_state": [[state_batch(5, 9, 4, 3)], [state_batch(5, 9, 0, 3)]],
    "twice_in_one": [[state_batch(5, 9, 0, 1), state_batch(7, 12, 2, 1)]],
    "acquired": [[state_batch(5, 9, 1)]],
}
"""State batches of one write after the other."""


@scenario(cases=STATES)
def batches(s: Session, writes: list[list[dict[str, int]]]) -> None:
    group, topic = begun(s)
    for each in writes:
        ask(s, 1, group, (topic, [data(start_offset=5, state_batches=each)]))
        show_state(s, group, topic)


@scenario
def start_moves_over_batches(s: Session) -> None:
    group, topic = begun(s)
    ask(s, 1, group, (topic, [data(state_batches=[state_batch(5, 9, 0), state_batch(10, 12, 2)])]))
    show_state(s, group, topic)
    ask(s, 1, group, (topic, [data(start_offset=8)]))
    show_state(s, group, topic)
    ask(s, 1, group, (topic, [data(start_offset=13)]))
    show_state(s, group, topic)
    ask(s, 1, group, (topic, [data(start_offset=6)]))
    show_state(s, group, topic)


IMPOSSIBLE = {
    "end_before_start": state_batch(9, 5, 2),
    "negative_offset": state_batch(-3, 5, 2),
    "unknown_state": state_batch(5, 9, 9),
    "negative_state": state_batch(5, 9, -1),
    "archiving": state_batch(5, 9, 3),
    "negative_count": state_batch(5, 9, 2, -1),
    "count_zero": state_batch(5, 9, 0, 0),
}


@scenario(cases=IMPOSSIBLE)
def batches_that_cannot_be(s: Session, batch: dict[str, int]) -> None:
    group, topic = begun(s)
    ask(s, 1, group, (topic, [data(state_batches=[batch])]))
    show_state(s, group, topic)


@scenario(versions=API, cases={"older": 1, "same": 2, "newer": 3, "any": -1, "negative": -2})
def state_epochs(s: Session, state_epoch: int, version: int) -> None:
    group, topic = begun(s)
    ask(s, version, group, (topic, [data(state_epoch=state_epoch, start_offset=6)]))
    ask(s, version, group, (topic, [data(start_offset=7)]))
    show_state(s, group, topic)


@scenario(versions=API, cases={"older": 3, "same": 4, "newer": 5, "any": -1, "negative": -2})
def leader_epochs(s: Session, leader_epoch: int, version: int) -> None:
    """Epoch 4 is known."""
    group, topic = begun(s)
    read = state_fields(s, group, (topic, [{"partition": 0, "leader_epoch": 4}]))
    s.quiet("ReadShareGroupState", 0, **read)
    ask(s, version, group, (topic, [data(leader_epoch=leader_epoch, start_offset=6)]))
    ask(s, version, group, (topic, [data(leader_epoch=4, start_offset=7)]))
    s.call("ReadShareGroupState", 0, **read)
    show_state(s, group, topic)


@scenario(versions=API)
def no_state(s: Session, version: int) -> None:
    group = s.name("g")
    ask(s, version, group, (share_topic(s, group), [data()]))


@scenario(cases={"negative": -1, "behind_the_last": 3})
def unknown_partition(s: Session, partition: int) -> None:
    group, topic = begun(s)
    ask(s, 1, group, (topic, [data(partition=partition), data()]))


@scenario
def unknown_topic(s: Session) -> None:
    group, topic = begun(s)
    ask(s, 1, group, (s.name("absent"), [data()]), (topic, [data()]))


@scenario
def no_group(s: Session) -> None:
    _, topic = begun(s)
    ask(s, 1, "", (topic, [data()]))


@scenario
def no_topics(s: Session) -> None:
    ask(s, 1, s.name("g"))


@scenario
def no_partitions(s: Session) -> None:
    group, topic = begun(s)
    ask(s, 1, group, (topic, []))
    ask(s, 1, group, (topic, [data(start_offset=6)]), (s.topic("other"), []))
    show_state(s, group, topic)


@scenario
def a_partition_twice(s: Session) -> None:
    group, topic = begun(s)
    ask(s, 1, group, (topic, [data(start_offset=6), data(start_offset=7)]))
    show_state(s, group, topic)


@scenario
def many_updates(s: Session) -> None:
    """More than make a snapshot."""
    group, topic = begun(s)
    for offset in range(5, 520):
        changed = data(start_offset=offset, state_batches=[state_batch(offset, offset + 1, 2)])
        s.quiet(API, 1, **state_fields(s, group, (topic, [changed])))
    show_state(s, group, topic)
