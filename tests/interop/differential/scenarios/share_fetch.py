"""ShareFetch: records under a lock, sessions, acknowledgements that come along."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import (
    ACCEPT,
    GAP,
    NOTHING_MS,
    REJECT,
    RELEASE,
    RENEW,
    Place,
    ShareConsumer,
    ShareMember,
    ack,
    begin_state,
    configure,
    lasting_topic,
    show_state,
    state_batch,
    write_state,
)
from tests.interop.differential.transactions import Transactor

API = "ShareFetch"


def ready(s: Session, *batches: bytes, partitions: int = 1) -> tuple[ShareConsumer, Place]:
    """A consumer of a group whose share partitions begin at 0, and the first of them, filled."""
    topic = lasting_topic(s, partitions=partitions)
    group = s.name("g")
    begin_state(s, group, topic, range(partitions))
    s.fill(topic, *batches)
    return ShareConsumer(s, group), (topic, 0)


FIVE = [batch("a"), batch("b", "c"), batch("d"), batch("e")]
"""Offsets 0, 1–2, 3 and 4."""


# What is fetched


@scenario(versions=API)
def one_batch(s: Session, version: int) -> None:
    a, place = ready(s, batch("a", "b", "c"))
    a.fetch(version, place)
    a.nothing(version)
    s.fill(place[0], batch("d"))
    a.fetch(version)


@scenario(versions=API)
def several_batches(s: Session, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.fetch(version, place)
    show_state(s, a.group, place[0])


@scenario(versions=API, cases={"gzip": "gzip", "lz4": "lz4", "snappy": "snappy", "zstd": "zstd"})
def compressed(s: Session, codec: str, version: int) -> None:
    a, place = ready(s, batch("a", "b", "c", codec=codec))
    a.fetch(version, place)


@scenario(versions=API, cases={"one": 1, "two": 2, "three": 3, "five": 5, "zero": 0, "minus": -1})
def batch_size(s: Session, size: int, version: int) -> None:
    """Where acquired ranges are cut."""
    a, place = ready(s, *FIVE)
    a.fetch(version, place, batch_size=size)


@scenario(versions=API, cases={"one": 1, "two": 2, "four": 4, "many": 1_000_000})
def max_records(s: Session, count: int, version: int) -> None:
    """A limit that may lie in the middle of a batch."""
    a, place = ready(s, *FIVE)
    a.fetch(version, place, max_records=count)
    a.fetch(version, max_records=count, max_wait_ms=NOTHING_MS)


@scenario(versions=API, cases={"zero": 0, "negative": -1})
def no_records_wanted(s: Session, count: int, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.nothing(version, place, max_records=count)


@scenario(cases={"one": 1, "two": 2, "four": 4, "many": 1_000_000})
def record_limit(s: Session, count: int) -> None:
    a, place = ready(s, *FIVE)
    for _ in range(3):
        a.fetch(2, place, max_records=count, share_acquire_mode=1, max_wait_ms=NOTHING_MS)


@scenario
def record_limit_inside_a_batch(s: Session) -> None:
    a, place = ready(s, batch(*"abcdef"))
    for _ in range(3):
        a.fetch(2, place, max_records=2, share_acquire_mode=1)
    show_state(s, a.group, place[0])


@scenario(cases={"two": 2, "negative": -1})
def unknown_acquire_mode(s: Session, mode: int) -> None:
    a, place = ready(s, *FIVE)
    a.fetch(2, place, share_acquire_mode=mode)


@scenario(versions=API, cases={"one": 1, "hundred": 100, "zero": 0, "negative": -1})
def max_bytes(s: Session, size: int, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.nothing(version, place, max_bytes=size)


@scenario(versions=API, cases={"more_than_there_is": 100_000, "zero": 0, "negative": -1})
def min_bytes(s: Session, size: int, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.nothing(version, place, min_bytes=size)


@scenario(cases={"zero": 0, "negative": -5})
def max_wait(s: Session, wait_ms: int) -> None:
    a, place = ready(s)
    a.nothing(1, place)
    a.fetch(1, max_wait_ms=wait_ms)
    s.fill(place[0], batch("a"))
    a.fetch(1, max_wait_ms=wait_ms)


@scenario(versions=API)
def waits_for_records(s: Session, version: int) -> None:
    a, place = ready(s)
    a.nothing(version, place)
    a.peer.post(API, version, **a.fetch_fields())
    time.sleep(0.2)
    s.fill(place[0], batch("a"))
    a.peer.receive()


@scenario(versions=API)
def a_topic_without_records(s: Session, version: int) -> None:
    a, place = ready(s)
    a.nothing(version, place)
    a.nothing(version)


@scenario
def two_partitions(s: Session) -> None:
    """The first fetch has the state of both loaded."""
    a, (topic, _) = ready(s, partitions=2)
    a.nothing(1, (topic, 0), (topic, 1))
    s.fill(topic, batch("a", "b"), partition=0)
    s.fill(topic, batch("c"), partition=1)
    a.fetch(1, max_records=1)
    a.fetch(1, max_records=1)
    a.nothing(1)


# Who may fetch


@scenario(
    versions=API,
    cases={
        "no_group": {"group_id": None},
        "empty_group": {"group_id": ""},
        "no_member": {"member_id": None},
        "empty_member": {"member_id": ""},
        "a_member_id_that_is_no_uuid": {"member_id": "m"},
        "a_member_id_of_36": {"member_id": "m" * 36},
        "a_member_id_of_37": {"member_id": "m" * 37},
    },
)
def identity(s: Session, more: dict[str, Any], version: int) -> None:
    a, place = ready(s, batch("a"))
    a.nothing(version, place, **more)


@scenario(versions=API)
def a_member_of_the_group(s: Session, version: int) -> None:
    topic, group = lasting_topic(s), s.name("g")
    configure(s, group, share_auto_offset_reset="earliest")
    s.fill(topic, batch("a", "b"))
    member = ShareMember(s, group)
    member.quiet_join(topic)
    a = ShareConsumer(s, group, "c")
    a.fetch(version, (topic, 0))
    a.acknowledge(version, {(topic, 0): [ack(0, 1, ACCEPT)]})
    s.call(
        "DescribeShareGroupOffsets",
        1,
        groups=[{"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}],
    )
    s.call("ShareGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)


@scenario(versions=API)
def another_kind_of_group(s: Session, version: int) -> None:
    """Whoever names a group with state is served, whatever the group is."""
    a, place = ready(s, batch("a"))
    joining = {"protocols": [{"name": "range", "metadata": b""}], "protocol_type": "other"}
    s.quiet(
        "JoinGroup",
        2,
        group_id=a.group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        **joining,
    )
    a.fetch(version, place)


# Sessions


@scenario(
    versions=API,
    cases={"final": -1, "later": 5, "far": 2_147_483_647, "negative": -2, "min": -(2**31)},
)
def no_session(s: Session, epoch: int, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.nothing(version, place, share_session_epoch=epoch)


@scenario(versions=API, cases={"older": 1, "newer": 3, "negative": -2})
def wrong_epoch(s: Session, epoch: int, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.fetch(version, place)
    a.nothing(version)
    a.nothing(version, share_session_epoch=epoch)
    a.nothing(version)


@scenario(versions=API)
def begins_again(s: Session, version: int) -> None:
    """A new session of the same member; what it held stays locked."""
    a, place = ready(s, batch("a"))
    a.fetch(version, place)
    a.nothing(version, place, share_session_epoch=0)
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT)]})


@scenario(versions=API)
def ends(s: Session, version: int) -> None:
    a, place = ready(s, batch("a", "b"))
    a.fetch(version, place)
    a.fetch(version, share_session_epoch=-1)
    a.nothing(version, share_session_epoch=2)
    b = ShareConsumer(s, a.group, "b")
    b.fetch(version, place)


@scenario(versions=API)
def ends_with_acknowledgements(s: Session, version: int) -> None:
    a, place = ready(s, batch("a", "b"))
    a.fetch(version, place)
    a.fetch(version, acks={place: [ack(0, 0, ACCEPT)]}, share_session_epoch=-1)
    b = ShareConsumer(s, a.group, "b")
    b.fetch(version, place)


@scenario(versions=API)
def ends_with_the_connection(s: Session, version: int) -> None:
    a, place = ready(s, batch("a", "b"))
    a.fetch(version, place)
    b = ShareConsumer(s, a.group, "b")
    b.nothing(version, place)
    a.peer.close()
    b.fetch(version)
    a.nothing(version, share_session_epoch=1)


@scenario(versions=API)
def partitions_are_added_and_forgotten(s: Session, version: int) -> None:
    a, (topic, _) = ready(s, partitions=2)
    a.nothing(version, (topic, 0))
    a.nothing(version, (topic, 1))
    forgotten = [s.topic_ref(topic, by_id=True) | {"partitions": [0]}]
    a.nothing(version, forgotten_topics_data=forgotten)
    s.fill(topic, batch("a"), partition=0)
    s.fill(topic, batch("b"), partition=1)
    a.fetch(version)
    a.fetch(version, (topic, 0))


@scenario(versions=API)
def nothing_is_forgotten(s: Session, version: int) -> None:
    """Partitions that the session does not have, or nobody."""
    a, place = ready(s, batch("a"))
    a.fetch(version, place)
    absent = s.topic_ref(s.name("absent"), by_id=True) | {"partitions": [0]}
    other = s.topic_ref(place[0], by_id=True) | {"partitions": [7, -1]}
    a.nothing(version, forgotten_topics_data=[absent, other])


@scenario(versions=API)
def added_and_forgotten_at_once(s: Session, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.nothing(version)
    forgotten = [s.topic_ref(place[0], by_id=True) | {"partitions": [0]}]
    a.nothing(version, place, forgotten_topics_data=forgotten)
    a.nothing(version)


@scenario(versions=API)
def nothing_at_all(s: Session, version: int) -> None:
    a = ShareConsumer(s, s.name("g"))
    a.nothing(version)
    a.nothing(version)


# Partitions that are not there


@scenario(versions=API, cases={"alone": False, "with_another": True})
def unknown_topic(s: Session, with_another: bool, version: int) -> None:
    a, place = ready(s, batch("a"))
    places = [(s.name("absent"), 0), *([place] if with_another else [])]
    a.fetch(version, *places, max_wait_ms=1_000)
    a.nothing(version)


@scenario(versions=API)
def zero_topic_id(s: Session, version: int) -> None:
    a, _ = ready(s)
    zero = {"topic_id": "0" * 32}
    topics = [zero | {"partitions": [{"partition_index": 0, "acknowledgement_batches": []}]}]
    a.nothing(version, topics=topics)


@scenario(versions=API, cases={"negative": -1, "behind_the_last": 5})
def unknown_partition(s: Session, index: int, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.fetch(version, (place[0], index), place, max_wait_ms=1_000)
    a.nothing(version)


@scenario(versions=API)
def a_partition_without_state(s: Session, version: int) -> None:
    topic = lasting_topic(s)
    s.fill(topic, batch("a"))
    a = ShareConsumer(s, s.name("g"))
    a.fetch(version, (topic, 0), max_wait_ms=2_000)
    a.fetch(version, max_wait_ms=2_000)


@scenario(versions=API)
def a_topic_that_is_deleted(s: Session, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.fetch(version, place)
    s.quiet("DeleteTopics", 5, topic_names=[place[0]], timeout_ms=10_000)
    s.await_no_topic(place[0])
    time.sleep(0.2)
    a.nothing(version)


@scenario(versions=API)
def a_partition_twice(s: Session, version: int) -> None:
    a, place = ready(s, batch("a"))
    named = a.topics({place: ()})
    a.fetch(version, topics=named + named)
    a.nothing(version)


# Acknowledgements that come along

KINDS = {"gap": GAP, "accept": ACCEPT, "release": RELEASE, "reject": REJECT}


@scenario(versions=API, cases=KINDS)
def acknowledges(s: Session, kind: int, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.fetch(version, place)
    a.nothing(version, acks={place: [ack(1, 2, kind)]})
    show_state(s, a.group, place[0])
    a.nothing(version)


@scenario(versions=API)
def acknowledges_in_the_first_request(s: Session, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.nothing(version, acks={place: [ack(0, 0, ACCEPT)]})


@scenario(versions=API)
def acknowledges_what_it_does_not_hold(s: Session, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.fetch(version, place, max_records=1)
    a.nothing(version, acks={place: [ack(3, 3, ACCEPT)]}, max_records=1)


@scenario(versions=API)
def acknowledges_elsewhere(s: Session, version: int) -> None:
    """Topics and partitions that are not there, and a partition that nobody has fetched."""
    a, (topic, _) = ready(s, batch("a"), partitions=2)
    a.fetch(version, (topic, 0))
    acks = {
        (topic, 0): [ack(0, 0, ACCEPT)],
        (topic, 5): [ack(0, 0, ACCEPT)],
        (s.name("absent"), 0): [ack(0, 0, ACCEPT)],
    }
    a.nothing(version, acks=acks)


@scenario(
    cases={
        "alone": {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0},
        "with_bytes": {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 9, "max_records": 0},
        "with_everything": {"max_wait_ms": 9, "min_bytes": 9, "max_bytes": 9, "max_records": 9},
    }
)
def renews(s: Session, more: dict[str, int]) -> None:
    a, place = ready(s, batch("a"))
    a.fetch(2, place)
    a.fetch(2, acks={place: [ack(0, 0, RENEW)]}, is_renew_ack=True, **more)
    a.fetch(2, acks={place: [ack(0, 0, ACCEPT)]}, is_renew_ack=True, **more)


@scenario(versions=API)
def renews_unannounced(s: Session, version: int) -> None:
    a, place = ready(s, batch("a"))
    a.fetch(version, place)
    a.nothing(version, acks={place: [ack(0, 0, RENEW)]})


@scenario
def renewal_without_acknowledgements(s: Session) -> None:
    a, place = ready(s, batch("a"))
    zeros = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    a.fetch(2, place, is_renew_ack=True, **zeros)
    a.fetch(2, place)


# Deliveries


@scenario(versions=API)
def two_consumers(s: Session, version: int) -> None:
    a, place = ready(s, *FIVE)
    b = ShareConsumer(s, a.group, "b")
    a.fetch(version, place, max_records=2)
    b.fetch(version, place, max_records=2)
    a.acknowledge(version, {place: [ack(0, 0, RELEASE), ack(1, 2, ACCEPT)]})
    b.fetch(version)
    show_state(s, a.group, place[0])


@scenario(versions=API)
def two_groups(s: Session, version: int) -> None:
    a, place = ready(s, batch("a"))
    begin_state(s, s.name("other"), place[0])
    b = ShareConsumer(s, s.name("other"), "b")
    a.fetch(version, place)
    b.fetch(version, place)


@scenario
def up_to_the_limit(s: Session) -> None:
    a, place = ready(s, batch("a", "b"))
    configure(s, a.group, share_delivery_count_limit=2)
    a.fetch(1, place)
    a.acknowledge(1, {place: [ack(0, 1, RELEASE)]})
    a.fetch(1)
    a.acknowledge(1, {place: [ack(0, 1, RELEASE)]})
    show_state(s, a.group, place[0])
    s.fill(place[0], batch("c"))
    a.fetch(1)


@scenario(cases={"one_batch": [batch(*"abcdefgh")], "two_batches": [batch(*"abcd")] * 2})
def in_smaller_portions(s: Session, batches: list[bytes]) -> None:
    """Records that were delivered often come in portions that are halved, at last one by one."""
    a, place = ready(s, *batches)
    a.quiet_fetch(place)
    a.quiet_acknowledge({place: [ack(0, 7, RELEASE)]})
    for _ in range(18):
        answer = a.fetch(1, max_wait_ms=NOTHING_MS)
        acquired = [
            each
            for topic in answer["responses"]
            for part in topic["partitions"]
            for each in part["acquired_records"]
        ]
        if not acquired:
            break
        releases = [ack(each["first_offset"], each["last_offset"], RELEASE) for each in acquired]
        a.acknowledge(1, {place: releases})
    show_state(s, a.group, place[0])


@scenario
def as_many_as_may_be_locked(s: Session) -> None:
    """120 batches, of which 100 may be locked."""
    a, place = ready(s, *[batch(str(number)) for number in range(120)])
    configure(s, a.group, share_partition_max_record_locks=100)
    a.fetch(1, place, max_records=1000)
    a.nothing(1)
    a.acknowledge(1, {place: [ack(50, 59, ACCEPT)]})
    a.fetch(1, max_wait_ms=NOTHING_MS)
    a.acknowledge(1, {place: [ack(0, 9, ACCEPT)]})
    a.fetch(1)


@scenario
def after_the_lock_has_ended(s: Session) -> None:
    a, place = ready(s, batch("a", "b"))
    configure(s, a.group, share_record_lock_duration_ms=1_000)
    a.fetch(1, place)
    b = ShareConsumer(s, a.group, "b")
    b.fetch(1, place)
    a.acknowledge(1, {place: [ack(0, 1, ACCEPT)]})
    b.acknowledge(1, {place: [ack(0, 1, ACCEPT)]})
    show_state(s, a.group, place[0])


@scenario
def renewal_keeps_the_lock(s: Session) -> None:
    a, place = ready(s, batch("a", "b"))
    configure(s, a.group, share_record_lock_duration_ms=2_000)
    a.fetch(2, place)
    time.sleep(1.2)
    a.acknowledge(2, {place: [ack(0, 1, RENEW)]}, is_renew_ack=True)
    time.sleep(1.2)
    a.acknowledge(2, {place: [ack(0, 1, ACCEPT)]})
    show_state(s, a.group, place[0])


# Where a group begins


@scenario(cases=["earliest", "latest", "by_duration:P1D", "by_duration:PT1S"])
def offset_reset(s: Session, reset: str) -> None:
    """The records of the first batch are long past."""
    topic, group = lasting_topic(s), s.name("g")
    configure(s, group, share_auto_offset_reset=reset)
    begin_state(s, group, topic, start_offset=-1)
    now = int(time.time() * 1000)
    s.fill(topic, batch("old"), batch("new", base_timestamp=now - 10_000))
    a = ShareConsumer(s, group)
    a.nothing(1, (topic, 0))
    s.fill(topic, batch("newest", base_timestamp=now))
    a.nothing(1)
    show_state(s, group, topic)


@scenario
def by_duration_of_nothing(s: Session) -> None:
    """No record is as young as that."""
    topic, group = lasting_topic(s), s.name("g")
    configure(s, group, share_auto_offset_reset="by_duration:PT1S")
    begin_state(s, group, topic, start_offset=-1)
    s.fill(topic, batch("old"))
    a = ShareConsumer(s, group)
    a.nothing(1, (topic, 0))


@scenario(versions=API)
def after_the_log_start_has_moved(s: Session, version: int) -> None:
    a, place = ready(s, *FIVE)
    a.fetch(version, place, max_records=1)
    part = {"partition_index": 0, "offset": 3}
    s.quiet(
        "DeleteRecords", 2, topics=[{"name": place[0], "partitions": [part]}], timeout_ms=10_000
    )
    a.await_records(place)
    a.acknowledge(version, {place: [ack(0, 0, ACCEPT), ack(3, 4, ACCEPT)]})
    show_state(s, a.group, place[0])


@scenario
def behind_the_end(s: Session) -> None:
    """The state says more than the log has."""
    a, place = ready(s, batch("a"))
    begin_state(s, a.group, place[0], start_offset=50, state_epoch=1)
    a.nothing(1, place)
    s.fill(place[0], batch("b"))
    a.nothing(1)


STORED = {
    "finished_in_the_middle": [state_batch(1, 2, 2)],
    "delivered_before": [state_batch(0, 0, 0, 2), state_batch(3, 3, 0, 1)],
    "delivered_often": [state_batch(0, 4, 0, 4)],
    "at_the_limit": [state_batch(0, 4, 0, 5)],
    "finished_at_the_start": [state_batch(0, 2, 2)],
    "hole": [state_batch(2, 2, 4)],
    "parts_of_batches": [state_batch(0, 1, 0, 2), state_batch(2, 2, 2)],
}
"""State that an earlier leader has left."""


@scenario(cases=STORED)
def goes_on_from_a_state(s: Session, stored: list[dict[str, int]]) -> None:
    a, place = ready(s, *FIVE)
    write_state(s, a.group, place[0], start_offset=0, state_batches=stored)
    a.fetch(1, place)
    a.nothing(1)
    show_state(s, a.group, place[0])


# Transactions


@scenario(cases=["read_committed", "read_uncommitted"])
def transactions(s: Session, isolation: str) -> None:
    """Committed, aborted and open ones."""
    a, place = ready(s)
    configure(s, a.group, share_isolation_level=isolation)
    x = Transactor(s).begin()
    x.write(place[0], "c1", "c2")
    x.end(commit=True)
    x.write(place[0], "a1", "a2")
    x.end(commit=False)
    x.write(place[0], "o1")
    a.fetch(1, place)
    a.nothing(1)
    show_state(s, a.group, place[0])
    x.end(commit=True)
    a.await_records(place) if isolation == "read_committed" else a.nothing(1)
