"""ShareAcknowledge: what consumers say of the records that they hold."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Batch,
    Place,
    ShareConsumer,
    ack,
    begin_state,
    configure,
    lasting_topic,
    show_state,
)

API = "ShareAcknowledge"

TEN = [batch("a"), batch("b", "c"), batch("d"), batch(*"efghij")]
"""Offsets 0, 1–2, 3 and 4–9."""


def holding(s: Session, *batches: bytes, batch_size: int = 500) -> tuple[ShareConsumer, Place]:
    """A consumer that holds all records of a partition."""
    topic, group = lasting_topic(s), s.name("g")
    begin_state(s, group, topic)
    s.fill(topic, *(batches or TEN))
    a = ShareConsumer(s, group)
    a.quiet_fetch((topic, 0), batch_size=batch_size)
    return a, (topic, 0)


def show(s: Session, a: ShareConsumer, place: Place) -> None:
    """Record the state, and what another consumer gets now."""
    show_state(s, a.group, place[0])
    ShareConsumer(s, a.group, "b").nothing(1, place)


KINDS = {"gap": GAP, "accept": ACCEPT, "release": RELEASE, "reject": REJECT}


@scenario(versions=API, cases=KINDS)
def everything(s: Session, kind: int, version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, {place: [ack(0, 9, kind)]})
    show(s, a, place)


@scenario(versions=API, cases=KINDS)
def a_part_of_a_batch(s: Session, kind: int, version: int) -> None:
    a, place = holding(s, batch_size=1)
    a.acknowledge(version, {place: [ack(5, 6, kind)]})
    show(s, a, place)


@scenario(versions=API)
def a_type_for_each(s: Session, version: int) -> None:
    a, place = holding(s)
    types = [ACCEPT, RELEASE, REJECT, GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, ACCEPT]
    a.acknowledge(version, {place: [ack(0, 9, *types)]})
    show(s, a, place)


@scenario(versions=API)
def several_batches(s: Session, version: int) -> None:
    a, place = holding(s, batch_size=1)
    batches = [ack(0, 1, ACCEPT), ack(2, 4, RELEASE), ack(7, 9, REJECT)]
    a.acknowledge(version, {place: batches})
    show(s, a, place)


@scenario(versions=API)
def in_turns(s: Session, version: int) -> None:
    """From the end to the start: the start offset moves with the last."""
    a, place = holding(s)
    for first, last in ((4, 9), (1, 3), (0, 0)):
        a.acknowledge(version, {place: [ack(first, last, ACCEPT)]})
        show_state(s, a.group, place[0])
    a.nothing(version)


@scenario(cases={"all": (0, 9), "part": (5, 6)})
def renews(s: Session, offsets: tuple[int, int]) -> None:
    a, place = holding(s)
    a.acknowledge(2, {place: [ack(*offsets, RENEW)]}, is_renew_ack=True)
    show(s, a, place)
    a.acknowledge(2, {place: [ack(*offsets, ACCEPT)]}, is_renew_ack=True)
    show(s, a, place)


@scenario
def renews_some(s: Session) -> None:
    a, place = holding(s, batch("a", "b", "c"))
    a.acknowledge(2, {place: [ack(0, 2, ACCEPT, RENEW, RELEASE)]}, is_renew_ack=True)
    show(s, a, place)


@scenario(versions=API, cases={"announced": True, "unannounced": False})
def renewal(s: Session, is_announced: bool, version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, {place: [ack(0, 9, RENEW)]}, is_renew_ack=is_announced)


@scenario
def renewal_that_is_not_allowed(s: Session) -> None:
    a, place = holding(s)
    configure(s, a.group, share_renew_acknowledge_enable="false")
    a.acknowledge(2, {place: [ack(0, 9, RENEW)]}, is_renew_ack=True)
    a.acknowledge(2, {place: [ack(0, 0, ACCEPT), ack(4, 5, RENEW)]}, is_renew_ack=True)
    show(s, a, place)


WRONG: dict[str, list[Batch]] = {
    "no_types": [ack(0, 9)],
    "too_few_types": [ack(0, 9, ACCEPT, ACCEPT)],
    "too_many_types": [ack(0, 0, ACCEPT, ACCEPT)],
    "unknown_type": [ack(0, 9, 5)],
    "negative_type": [ack(0, 9, -1)],
    "unknown_type_among_others": [ack(0, 1, ACCEPT, 7)],
    "end_before_start": [ack(9, 0, ACCEPT)],
    "out_of_order": [ack(4, 9, ACCEPT), ack(0, 3, ACCEPT)],
    "overlap": [ack(0, 4, ACCEPT), ack(3, 9, ACCEPT)],
    "touching": [ack(0, 4, ACCEPT), ack(4, 9, ACCEPT)],
    "the_same_twice": [ack(0, 0, ACCEPT), ack(0, 0, ACCEPT)],
    "past_the_end": [ack(0, 10, ACCEPT)],
    "behind_the_end": [ack(20, 30, ACCEPT)],
    "negative_offsets": [ack(-5, -1, ACCEPT)],
    "from_below_zero": [ack(-5, 3, ACCEPT)],
    "good_and_behind_the_end": [ack(0, 3, ACCEPT), ack(20, 30, ACCEPT)],
    "whole_range": [ack(0, 2**31, ACCEPT)],
}


@scenario(versions=API, cases=WRONG)
def wrong_batches(s: Session, batches: list[Batch], version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, {place: batches})
    show(s, a, place)


@scenario(versions=API, cases=KINDS)
def again(s: Session, kind: int, version: int) -> None:
    """What was acknowledged already, and something new with it."""
    a, place = holding(s)
    a.acknowledge(version, {place: [ack(4, 9, kind)]})
    a.acknowledge(version, {place: [ack(4, 9, ACCEPT)]})
    a.acknowledge(version, {place: [ack(3, 4, ACCEPT)]})
    show(s, a, place)


@scenario(versions=API)
def below_the_start(s: Session, version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, {place: [ack(0, 3, ACCEPT)]})
    a.acknowledge(version, {place: [ack(0, 3, ACCEPT)]})
    a.acknowledge(version, {place: [ack(2, 9, ACCEPT)]})
    show(s, a, place)


@scenario(versions=API)
def what_another_holds(s: Session, version: int) -> None:
    a, place = holding(s, batch(*"abcd"))
    s.fill(place[0], batch("e"))
    b = ShareConsumer(s, a.group, "b")
    b.quiet_fetch(place)
    b.acknowledge(version, {place: [ack(0, 3, ACCEPT)]})
    b.acknowledge(version, {place: [ack(2, 4, ACCEPT)]})
    a.acknowledge(version, {place: [ack(0, 4, ACCEPT)]})
    a.acknowledge(version, {place: [ack(0, 3, ACCEPT)]})
    show_state(s, a.group, place[0])


@scenario(versions=API)
def what_nobody_holds(s: Session, version: int) -> None:
    """The partition was loaded, and nothing was acquired."""
    topic, group = lasting_topic(s), s.name("g")
    begin_state(s, group, topic)
    a = ShareConsumer(s, group)
    a.nothing(version, (topic, 0))
    a.acknowledge(version, {(topic, 0): [ack(0, 0, ACCEPT)]})
    s.fill(topic, batch("a"))
    a.acknowledge(version, {(topic, 0): [ack(0, 0, ACCEPT)]})


@scenario(versions=API)
def a_partition_that_nobody_fetched(s: Session, version: int) -> None:
    topic, group = lasting_topic(s, partitions=2), s.name("g")
    begin_state(s, group, topic, [0, 1])
    s.fill(topic, batch("a"))
    s.fill(topic, batch("b"), partition=1)
    a = ShareConsumer(s, group)
    a.quiet_fetch((topic, 0))
    a.acknowledge(version, {(topic, 1): [ack(0, 0, ACCEPT)]})
    acks = {(topic, 0): [ack(0, 0, ACCEPT)], (topic, 1): [ack(0, 0, ACCEPT)]}
    a.acknowledge(version, acks)


@scenario(versions=API)
def partitions_that_are_not_there(s: Session, version: int) -> None:
    a, place = holding(s)
    one = ack(0, 0, ACCEPT)
    a.acknowledge(version, {(place[0], 5): [one]})
    a.acknowledge(version, {(place[0], -1): [one]})
    a.acknowledge(version, {(s.name("absent"), 0): [one]})
    a.acknowledge(version, {(s.name("absent"), 0): [], (place[0], 5): [ack(3, 0, ACCEPT)]})
    a.acknowledge(version, {place: [one], (place[0], 5): [one], (s.name("absent"), 0): [one]})
    show(s, a, place)


@scenario(versions=API)
def without_batches(s: Session, version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, {place: []})
    a.acknowledge(version, {})
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT)], (place[0], 5): []})


@scenario(versions=API)
def a_partition_twice(s: Session, version: int) -> None:
    a, place = holding(s)
    one = a.topics({place: [ack(0, 0, ACCEPT)]})
    two = a.topics({place: [ack(4, 9, ACCEPT)]})
    a.acknowledge(version, topics=one + two)
    show(s, a, place)


@scenario(versions=API)
def a_partition_twice_in_a_topic(s: Session, version: int) -> None:
    a, place = holding(s)
    (one,) = a.topics({place: [ack(0, 0, ACCEPT)]})
    (two,) = a.topics({place: [ack(4, 9, ACCEPT)]})
    both = one | {"partitions": one["partitions"] + two["partitions"]}
    a.acknowledge(version, topics=[both])
    show(s, a, place)


@scenario(
    versions=API,
    cases={"initial": 0, "older": -7, "newer": 9, "max": 2_147_483_647},
)
def wrong_epoch(s: Session, epoch: int, version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, {place: [ack(0, 9, ACCEPT)]}, share_session_epoch=epoch)
    a.acknowledge(version, {place: [ack(0, 9, ACCEPT)]}, share_session_epoch=1)
    a.acknowledge(version, {}, share_session_epoch=1)


@scenario(versions=API, cases={"initial": 0, "first": 1, "final": -1})
def no_session(s: Session, epoch: int, version: int) -> None:
    a, place = holding(s)
    b = ShareConsumer(s, a.group, "b")
    b.acknowledge(version, {place: [ack(0, 9, ACCEPT)]}, share_session_epoch=epoch)


@scenario(versions=API)
def the_last_request(s: Session, version: int) -> None:
    """What is not acknowledged is released."""
    a, place = holding(s)
    a.acknowledge(version, {place: [ack(0, 2, ACCEPT)]}, share_session_epoch=-1)
    a.acknowledge(version, {place: [ack(3, 3, ACCEPT)]}, share_session_epoch=2)
    ShareConsumer(s, a.group, "b").fetch(1, place)
    show_state(s, a.group, place[0])


@scenario(versions=API)
def the_last_request_says_nothing(s: Session, version: int) -> None:
    a, place = holding(s)
    a.acknowledge(version, share_session_epoch=-1)
    ShareConsumer(s, a.group, "b").fetch(1, place)


@scenario(
    versions=API,
    cases={
        "no_group": {"group_id": None},
        "empty_group": {"group_id": ""},
        "no_member": {"member_id": None},
        "empty_member": {"member_id": ""},
        "a_member_id_of_36": {"member_id": "m" * 36},
        "a_member_id_of_37": {"member_id": "m" * 37},
    },
)
def identity(s: Session, more: dict[str, Any], version: int) -> None:
    a, place = holding(s, batch("a"))
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT)]}, **more)


@scenario(versions=API)
def a_topic_that_is_deleted(s: Session, version: int) -> None:
    a, place = holding(s)
    s.quiet("DeleteTopics", 5, topic_names=[place[0]], timeout_ms=10_000)
    s.await_no_topic(place[0])
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT)]})


@scenario(versions=API)
def after_the_state_was_deleted(s: Session, version: int) -> None:
    a, place = holding(s)
    fields = {"group_id": a.group, "topics": [s.topic_ref(place[0], by_id=True)]}
    fields["topics"][0]["partitions"] = [{"partition": 0}]  # type: ignore[index]
    s.quiet("DeleteShareGroupState", 0, **fields)
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT)]})
    a.acknowledge(version, {place: [ack(1, 2, ACCEPT)]})


@scenario(versions=API)
def after_the_state_was_begun_anew(s: Session, version: int) -> None:
    """As an administrator does who resets the group: the leader's epoch is behind."""
    a, place = holding(s)
    begin_state(s, a.group, place[0], state_epoch=4, start_offset=3)
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT)]})
    a.acknowledge(version, {place: [ack(1, 2, ACCEPT)]})
    a.nothing(version)


@scenario
def ten_thousand_types(s: Session) -> None:
    a, place = holding(s, *[batch(*["x"] * 100) for _ in range(20)])
    types = [ACCEPT, RELEASE] * 250
    a.acknowledge(1, {place: [ack(0, 499, *types)]})
    show_state(s, a.group, place[0])
