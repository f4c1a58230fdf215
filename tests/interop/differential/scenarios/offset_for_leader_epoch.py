"""OffsetForLeaderEpoch: the end of an epoch as consumers and followers ask for it."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def ask(s: Session, version: int, topic: str, partition: int = 0, **part: Any) -> None:
    more = {"partition": partition, "leader_epoch": 0} | part
    s.call(
        "OffsetForLeaderEpoch",
        version,
        replica_id=-1,
        topics=[{"topic": topic, "partitions": [more]}],
    )


def filled(s: Session) -> str:
    topic = s.topic()
    s.fill(topic, batch("a", "b"), batch("c"))
    return topic


@scenario(
    versions="OffsetForLeaderEpoch",
    cases={"zero": 0, "one": 1, "large": 2**31 - 1, "undefined": -1, "minus_two": -2},
)
def epoch(s: Session, wanted: int, version: int) -> None:
    ask(s, version, filled(s), leader_epoch=wanted)


@scenario(versions="OffsetForLeaderEpoch")
def empty_partition(s: Session, version: int) -> None:
    ask(s, version, s.topic())


@scenario(versions="OffsetForLeaderEpoch", cases={"same": 0, "newer": 4, "older": -3})
def current_leader_epoch(s: Session, current: int, version: int) -> None:
    ask(s, version, filled(s), current_leader_epoch=current)


@scenario(versions="OffsetForLeaderEpoch")
def unknown_topic_and_partition(s: Session, version: int) -> None:
    ask(s, version, s.name("absent"))
    ask(s, version, filled(s), 8)


@scenario(cases={"consumer": -1, "debug": -2, "itself": 1, "unknown": 9})
def replica(s: Session, replica_id: int) -> None:
    part = {"partition": 0, "leader_epoch": 0}
    topics = [{"topic": filled(s), "partitions": [part]}]
    s.call("OffsetForLeaderEpoch", 3, replica_id=replica_id, topics=topics)


@scenario(versions="OffsetForLeaderEpoch")
def several(s: Session, version: int) -> None:
    one, two = filled(s), s.topic("two", 2)
    topics = [
        {"topic": one, "partitions": [{"partition": 0, "leader_epoch": each} for each in (0, 5)]},
        {"topic": two, "partitions": [{"partition": each, "leader_epoch": 0} for each in (1, 2)]},
    ]
    s.call("OffsetForLeaderEpoch", version, replica_id=-1, topics=topics)


@scenario(versions="OffsetForLeaderEpoch")
def nothing_asked(s: Session, version: int) -> None:
    s.call("OffsetForLeaderEpoch", version, replica_id=-1, topics=[])


@scenario(versions="OffsetForLeaderEpoch")
def after_delete_records(s: Session, version: int) -> None:
    topic = filled(s)
    part = {"partition_index": 0, "offset": -1}
    s.quiet("DeleteRecords", 1, topics=[{"name": topic, "partitions": [part]}], timeout_ms=5000)
    ask(s, version, topic)
