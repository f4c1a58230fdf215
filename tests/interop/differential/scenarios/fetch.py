"""Fetch: positions, limits, sessions, epochs, addressing by name and by id."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tests.interop.differential.batches import Batch, Record, batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session

LARGE = 10_000_000


def fields_for(
    s: Session,
    version: int,
    parts: Sequence[tuple[str, int, int]] | Sequence[tuple[str, int, int, dict[str, Any]]],
    **more: object,
) -> dict[str, object]:
    """Return a Fetch request for (topic, partition, offset[, more fields]); it does not wait."""
    topics: dict[str, dict[str, Any]] = {}
    for topic, partition, offset, *rest in parts:
        entry = topics.setdefault(
            topic, s.topic_ref(topic, by_id=version >= 13, field="topic") | {"partitions": []}
        )
        entry["partitions"].append(
            {"partition": partition, "fetch_offset": offset, "partition_max_bytes": LARGE}
            | (rest[0] if rest else {})
        )
    common: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 0, "topics": list(topics.values())}
    if version <= 14:
        common["replica_id"] = -1
    return common | more


def fetch(s: Session, version: int, parts: Sequence[tuple[Any, ...]], **more: object) -> Answer:
    return s.call("Fetch", version, **fields_for(s, version, parts, **more))


def filled(s: Session, label: str = "t") -> str:
    """A topic with three batches: offsets 0–1, 2–4, 5."""
    topic = s.topic(label)
    s.fill(topic, batch("a", "b"), batch("c", "d", "e"), batch("f"))
    return topic


@scenario(versions="Fetch")
def from_the_start(s: Session, version: int) -> None:
    fetch(s, version, [(filled(s), 0, 0)])


@scenario(versions="Fetch")
def inside_a_batch(s: Session, version: int) -> None:
    fetch(s, version, [(filled(s), 0, 3)])


@scenario(versions="Fetch")
def at_the_end(s: Session, version: int) -> None:
    fetch(s, version, [(filled(s), 0, 6)])


@scenario(versions="Fetch")
def behind_the_end(s: Session, version: int) -> None:
    fetch(s, version, [(filled(s), 0, 7)])


@scenario(versions="Fetch")
def unknown_topic(s: Session, version: int) -> None:
    fetch(s, version, [(s.name("absent"), 0, 0)])


@scenario(versions="Fetch")
def unknown_partition(s: Session, version: int) -> None:
    fetch(s, version, [(filled(s), 9, 0)])


@scenario(versions="Fetch")
def read_committed(s: Session, version: int) -> None:
    fetch(s, version, [(filled(s), 0, 0)], isolation_level=1)


@scenario(versions="Fetch")
def empty_topic(s: Session, version: int) -> None:
    fetch(s, version, [(s.topic(), 0, 0)])


@scenario(cases={"minus_one": -1, "minus_two": -2, "min": -(2**63), "max": 2**63 - 1})
def odd_offset(s: Session, offset: int) -> None:
    fetch(s, 11, [(filled(s), 0, offset)])


@scenario(versions=[4, 11, 16])
def below_the_log_start(s: Session, version: int) -> None:
    topic = filled(s)
    s.quiet(
        "DeleteRecords",
        1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}],
        timeout_ms=5000,
    )
    for offset in (0, 1, 2, 3, 4, 5):
        fetch(s, version, [(topic, 0, offset)])


@scenario(cases={"zero": 0, "one": 1, "one_batch": 70, "two_batches": 150, "negative": -1})
def partition_max_bytes(s: Session, limit: int) -> None:
    topic = filled(s)
    for offset in (0, 2, 5, 6):
        fetch(s, 11, [(topic, 0, offset, {"partition_max_bytes": limit})])


@scenario(cases={"zero": 0, "one": 1, "one_batch": 70, "two_batches": 150, "negative": -1})
def max_bytes(s: Session, limit: int) -> None:
    topic = filled(s)
    for offset in (0, 2, 5, 6):
        fetch(s, 11, [(topic, 0, offset)], max_bytes=limit)


@scenario(
    cases={
        "zero": (0, 0),
        "one": (1, 1),
        "first_fits": (LARGE, 70),
        "both": (LARGE, LARGE),
        "partition_limit_one": (1, LARGE),
        "request_limit_zero": (LARGE, 0),
        "request_limit_negative": (LARGE, -1),
        "request_limit_least": (LARGE, -(1 << 31)),
        "partition_limit_negative": (-1, LARGE),
        "partition_limit_least": (-(1 << 31), LARGE),
        "both_negative": (-2, -3),
    }
)
def limits_over_two_partitions(s: Session, limits: tuple[int, int]) -> None:
    topic = s.topic(partitions=2)
    for partition in (0, 1):
        s.fill(topic, batch("a", "b"), batch("c" * 50), partition=partition)
    part = {"partition_max_bytes": limits[0]}
    fetch(s, 11, [(topic, 0, 0, part), (topic, 1, 0, part)], max_bytes=limits[1])


@scenario
def first_partition_empty_second_gets_its_batch(s: Session) -> None:
    topic = s.topic(partitions=3)
    for partition in (1, 2):
        s.fill(topic, batch("x" * 100), partition=partition)
    parts = [(topic, each, 0, {"partition_max_bytes": 1}) for each in (0, 1, 2)]
    fetch(s, 11, parts, max_bytes=1)


@scenario(cases={"request": (100, -1), "partition": (-1, 100), "both": (-1, -1)})
def negative_limits_and_no_records(s: Session, limits: tuple[int, int]) -> None:
    """Two partitions without records, and one with a record that comes last or first."""
    topic = s.topic(partitions=3)
    s.fill(topic, batch("x" * 100), partition=2)
    part = {"partition_max_bytes": limits[0]}
    for order in ((0, 1), (0, 2, 1), (2, 0)):
        fetch(s, 11, [(topic, each, 0, part) for each in order], max_bytes=limits[1])
    fetch(s, 11, [(topic, 2, 1, part), (topic, 2, 7, part)], max_bytes=limits[1])


@scenario
def batch_larger_than_all_limits(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch("x" * 5000), batch("y"))
    for offset in (0, 1):
        fetch(s, 11, [(topic, 0, offset, {"partition_max_bytes": 100})], max_bytes=100)


@scenario(cases={"plenty": 1, "too_much": 1_000_000})
def min_bytes_without_waiting(s: Session, min_bytes: int) -> None:
    fetch(s, 11, [(filled(s), 0, 0)], min_bytes=min_bytes)


@scenario
def min_bytes_after_waiting(s: Session) -> None:
    fetch(s, 11, [(filled(s), 0, 0)], min_bytes=1_000_000, max_wait_ms=50)


@scenario
def waits_until_data_comes(s: Session) -> None:
    topic = filled(s)
    other = s.peer("other")
    other.post("Fetch", 11, **fields_for(s, 11, [(topic, 0, 6)], min_bytes=1, max_wait_ms=20_000))
    s.produce(batch("new"), topic=topic)
    other.receive()


@scenario
def an_error_and_nothing_else_to_send(s: Session) -> None:
    topic = filled(s)
    parts = [(topic, 0, 6), (topic, 5, 0)]
    fetch(s, 11, parts, min_bytes=1, max_wait_ms=300)


@scenario
def waits_over_two_partitions(s: Session) -> None:
    topic = s.topic(partitions=2)
    other = s.peer("other")
    parts = [(topic, 0, 0), (topic, 1, 0)]
    other.post("Fetch", 11, **fields_for(s, 11, parts, min_bytes=150, max_wait_ms=20_000))
    s.fill(topic, batch("x" * 20), partition=0)
    s.fill(topic, batch("y" * 20), partition=1)
    other.receive()


@scenario(versions=[9, 11, 12, 13, 16, 18], cases={"same": 0, "older": -2, "newer": 5})
def current_leader_epoch(s: Session, epoch: int, version: int) -> None:
    fetch(s, version, [(filled(s), 0, 0, {"current_leader_epoch": epoch})])


@scenario(versions=[12, 13, 18], cases={"same": 0, "newer": 3, "unknown": -1, "older": -5})
def last_fetched_epoch(s: Session, epoch: int, version: int) -> None:
    topic = filled(s)
    for offset in (0, 3, 6, 100):
        fetch(s, version, [(topic, 0, offset, {"last_fetched_epoch": epoch})])


@scenario(versions=[4, 13])
def nothing_to_fetch(s: Session, version: int) -> None:
    fetch(s, version, [])


@scenario(versions=[4, 13])
def topic_without_partitions(s: Session, version: int) -> None:
    named = s.topic_ref(filled(s), by_id=version >= 13, field="topic")
    fetch(s, version, [], topics=[named | {"partitions": []}])


@scenario(versions=[4, 7, 11, 12, 13, 16, 18])
def several_topics_one_unknown(s: Session, version: int) -> None:
    one, two = filled(s, "one"), filled(s, "two")
    parts = [(one, 0, 2), (one, 3, 0), (s.name("absent"), 0, 0), (two, 0, 5)]
    fetch(s, version, parts)


@scenario(versions=[4, 11, 13])
def same_partition_twice(s: Session, version: int) -> None:
    topic = filled(s)
    fetch(s, version, [(topic, 0, 0), (topic, 0, 5)])


@scenario(cases=["zero", "random"], versions=[13, 15, 16, 18])
def unknown_topic_id(s: Session, kind: str, version: int) -> None:
    topic_id = "0" * 32 if kind == "zero" else os.urandom(16).hex()
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": LARGE}
    fetch(s, version, [], topics=[{"topic_id": topic_id, "partitions": [part]}])


@scenario(cases={"empty": "", "slash": "a/b", "dot": ".", "too_long": "x" * 250})
def illegal_topic_name(s: Session, name: str) -> None:
    fetch(s, 11, [(name, 0, 0)])


@scenario(cases={"negative": -1, "max": 2**31 - 1})
def odd_partition(s: Session, partition: int) -> None:
    fetch(s, 11, [(filled(s), partition, 0)])


@scenario(cases={"two": 2, "negative": -1, "max": 127})
def odd_isolation_level(s: Session, level: int) -> None:
    fetch(s, 11, [(filled(s), 0, 0)], isolation_level=level)


@scenario(cases={"debug_consumer": -2, "itself": 1, "unknown_broker": 5})
def as_a_replica(s: Session, replica_id: int) -> None:
    topic = filled(s)
    fetch(s, 11, [(topic, 0, 0)], replica_id=replica_id, session_epoch=-1)


@scenario
def rack_id(s: Session) -> None:
    fetch(s, 11, [(filled(s), 0, 0)], rack_id="r1")


@scenario(cases={"wrong": "no-such-cluster", "empty": ""})
def cluster_id(s: Session, cluster: str) -> None:
    fetch(s, 12, [(filled(s), 0, 0)], cluster_id=cluster)


@scenario(cases={"batches": 0, "compressed": 1})
def many_batches(s: Session, compressed: int) -> None:
    topic = s.topic(configs={"segment.bytes": "1048576", "index.interval.bytes": "100"})
    made = Batch(records=[Record(b"v" * 50)] * 5, codec="gzip" if compressed else None)
    s.fill(topic, *[made.encode()] * 20)
    for offset in (0, 1, 49, 50, 99):
        fetch(s, 11, [(topic, 0, offset, {"partition_max_bytes": 1000})])


@scenario(
    cases={"gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
    versions=[4, 9, 10, 13],
)
def compressed(s: Session, codec: str, version: int) -> None:
    """zstd reaches only those who know it (version 10)."""
    topic = s.topic()
    s.fill(topic, batch("before"), Batch(records=[Record(b"v" * 100)] * 3, codec=codec).encode())
    fetch(s, version, [(topic, 0, 0)])


# Sessions (KIP-227)


@scenario(versions=[7, 11, 12, 13, 16, 18])
def session(s: Session, version: int) -> None:
    """A full fetch opens a session; increments name only what changed."""
    topic = filled(s)
    opened = fetch(s, version, [(topic, 0, 0)], session_id=0, session_epoch=0)
    own = opened["session_id"]
    fetch(s, version, [(topic, 0, 6)], session_id=own, session_epoch=1)
    fetch(s, version, [], session_id=own, session_epoch=2)
    s.fill(topic, batch("new"))
    fetch(s, version, [], session_id=own, session_epoch=3)
    fetch(s, version, [(topic, 0, 7)], session_id=own, session_epoch=4)
    fetch(s, version, [], session_id=own, session_epoch=5)


@scenario(versions=[7, 11, 13])
def session_adds_and_forgets(s: Session, version: int) -> None:
    one, two = filled(s, "one"), filled(s, "two")
    own = fetch(s, version, [(one, 0, 6)], session_epoch=0)["session_id"]
    fetch(s, version, [(two, 0, 5)], session_id=own, session_epoch=1)
    gone = s.topic_ref(one, by_id=version >= 13, field="topic") | {"partitions": [0]}
    fetch(s, version, [], session_id=own, session_epoch=2, forgotten_topics_data=[gone])
    s.fill(one, batch("x"))
    fetch(s, version, [], session_id=own, session_epoch=3)


@scenario(versions=[7, 13], cases={"repeated": 1, "skipped": 4, "zero_and_id": 0, "negative": -7})
def session_epoch(s: Session, epoch: int, version: int) -> None:
    """A wrong epoch is refused and the session goes on."""
    topic = filled(s)
    own = fetch(s, version, [(topic, 0, 0)], session_epoch=0)["session_id"]
    fetch(s, version, [], session_id=own, session_epoch=1)
    fetch(s, version, [], session_id=own, session_epoch=epoch)
    fetch(s, version, [(topic, 0, 3)], session_id=own, session_epoch=2)


@scenario(
    versions=[7, 13],
    cases={
        "unknown": (123_456, 1),
        "negative": (-5, 1),
        "zero": (0, 1),
        "unknown_full": (123_456, 0),
        "unknown_close": (123_456, -1),
    },
)
def session_unknown(s: Session, ids: tuple[int, int], version: int) -> None:
    fetch(s, version, [(filled(s), 0, 0)], session_id=ids[0], session_epoch=ids[1])


@scenario(versions=[7, 13])
def session_closed(s: Session, version: int) -> None:
    topic = filled(s)
    own = fetch(s, version, [(topic, 0, 0)], session_epoch=0)["session_id"]
    fetch(s, version, [(topic, 0, 2)], session_id=own, session_epoch=-1)
    fetch(s, version, [], session_id=own, session_epoch=1)


@scenario(versions=[7, 13])
def session_replaced_by_a_full_fetch(s: Session, version: int) -> None:
    topic = filled(s)
    own = fetch(s, version, [(topic, 0, 0)], session_epoch=0)["session_id"]
    again = fetch(s, version, [(topic, 0, 2)], session_id=own, session_epoch=0)["session_id"]
    fetch(s, version, [], session_id=own, session_epoch=1)
    fetch(s, version, [(topic, 0, 5)], session_id=again, session_epoch=1)


@scenario(versions=[7, 12, 13, 16])
def session_repeats_a_failing_partition(s: Session, version: int) -> None:
    topic = filled(s)
    parts = [(topic, 0, 6), (topic, 8, 0), (topic, 9, 0)]
    own = fetch(s, version, parts, session_epoch=0)["session_id"]
    fetch(s, version, [], session_id=own, session_epoch=1)
    fetch(s, version, [], session_id=own, session_epoch=2)


@scenario(versions=[7, 13])
def session_out_of_range_then_right(s: Session, version: int) -> None:
    topic = filled(s)
    own = fetch(s, version, [(topic, 0, 99)], session_epoch=0)["session_id"]
    fetch(s, version, [], session_id=own, session_epoch=1)
    fetch(s, version, [(topic, 0, 5)], session_id=own, session_epoch=2)


@scenario(versions=[7, 13])
def session_reports_a_changed_log_start_once(s: Session, version: int) -> None:
    topic = filled(s)
    own = fetch(s, version, [(topic, 0, 6)], session_epoch=0)["session_id"]
    s.quiet(
        "DeleteRecords",
        1,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "offset": 3}]}],
        timeout_ms=5000,
    )
    fetch(s, version, [], session_id=own, session_epoch=1)
    fetch(s, version, [], session_id=own, session_epoch=2)


@scenario(versions=[7, 13])
def session_with_nothing(s: Session, version: int) -> None:
    fetch(s, version, [], session_epoch=0)


@scenario(versions=[7, 13])
def session_of_two_partitions_turns(s: Session, version: int) -> None:
    """A partition that sent records goes to the end of the line."""
    topic = s.topic(partitions=2)
    for partition in (0, 1):
        s.fill(topic, batch("a" * 100), batch("b" * 100), partition=partition)
    parts = [(topic, 0, 0), (topic, 1, 0)]
    own = fetch(s, version, parts, session_epoch=0, max_bytes=1)["session_id"]
    fetch(s, version, [(topic, 0, 1)], session_id=own, session_epoch=1, max_bytes=1)
    fetch(s, version, [(topic, 1, 1)], session_id=own, session_epoch=2, max_bytes=1)


@scenario
def session_topic_id_changes_to_name(s: Session) -> None:
    """A session of ids continued by name, and the other way round."""
    topic = filled(s)
    own = fetch(s, 13, [(topic, 0, 0)], session_epoch=0)["session_id"]
    fetch(s, 12, [(topic, 0, 0)], session_id=own, session_epoch=1)
    named = fetch(s, 12, [(topic, 0, 0)], session_epoch=0)["session_id"]
    fetch(s, 13, [(topic, 0, 0)], session_id=named, session_epoch=1)


@scenario(versions=[7, 13])
def session_topic_deleted(s: Session, version: int) -> None:
    topic, stays = filled(s, "goes"), filled(s, "stays")
    own = fetch(s, version, [(topic, 0, 6), (stays, 0, 6)], session_epoch=0)["session_id"]
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)
    fetch(s, version, [], session_id=own, session_epoch=1)
    fetch(s, version, [], session_id=own, session_epoch=2)


@scenario
def session_topic_created_later(s: Session) -> None:
    absent, stays = s.name("late"), filled(s, "stays")
    own = fetch(s, 12, [(absent, 0, 0), (stays, 0, 6)], session_epoch=0)["session_id"]
    s.topic("late")
    fetch(s, 12, [], session_id=own, session_epoch=1)
    s.fill(absent, batch("a"))
    fetch(s, 12, [], session_id=own, session_epoch=2)


@scenario
def sessions_are_not_bound_to_connections(s: Session) -> None:
    topic = filled(s)
    own = fetch(s, 11, [(topic, 0, 0)], session_epoch=0)["session_id"]
    other = s.peer("other")
    other.call("Fetch", 11, **fields_for(s, 11, [(topic, 0, 3)], session_id=own, session_epoch=1))


@scenario(versions=[13])
def recreated_topic_has_another_id(s: Session, version: int) -> None:
    topic = filled(s)
    old = s.topic_id(topic)
    s.quiet("DeleteTopics", 5, topic_names=[topic], timeout_ms=10_000)
    s.await_no_topic(topic)
    s.topic()
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": LARGE}
    fetch(s, version, [], topics=[{"topic_id": old, "partitions": [part]}])
