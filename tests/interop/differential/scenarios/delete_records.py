"""DeleteRecords: moving the start of the log."""

from __future__ import annotations

from tests.interop.differential.batches import Batch, Record, batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def delete(s: Session, version: int, topic: str, offset: int, partition: int = 0) -> None:
    """Delete the records before ``offset``."""
    part = {"partition_index": partition, "offset": offset}
    topics = [{"name": topic, "partitions": [part]}]
    s.call("DeleteRecords", version, topics=topics, timeout_ms=10_000)


def filled(s: Session) -> str:
    topic = s.topic()
    s.fill(topic, batch("a", "b"), batch("c", "d", "e"), batch("f"))
    return topic


@scenario(versions="DeleteRecords")
def up_to_an_offset(s: Session, version: int) -> None:
    topic = filled(s)
    delete(s, version, topic, 3)
    for timestamp in (-2, -1):
        part = {"partition_index": 0, "timestamp": timestamp}
        s.call("ListOffsets", 5, replica_id=-1, topics=[{"name": topic, "partitions": [part]}])
    s.produce(batch("g"), topic=topic)


OFFSETS = {
    "high_watermark": -1,
    "end": 6,
    "behind_the_end": 7,
    "zero": 0,
    "minus_two": -2,
    "min": -(2**63),
    "max": 2**63 - 1,
}


@scenario(cases=OFFSETS, versions="DeleteRecords")
def offset(s: Session, wanted: int, version: int) -> None:
    delete(s, version, filled(s), wanted)


@scenario
def below_the_start(s: Session) -> None:
    topic = filled(s)
    for wanted in (4, 2, 4, 5, -1, 0):
        delete(s, 2, topic, wanted)


@scenario(versions="DeleteRecords")
def unknown_topic_and_partition(s: Session, version: int) -> None:
    delete(s, version, s.name("absent"), 0)
    delete(s, version, filled(s), 0, 9)


@scenario(cases={"compact": "compact", "both": "compact,delete"}, versions=[0, 2])
def compacted_topic(s: Session, policy: str, version: int) -> None:
    topic = s.topic(configs={"cleanup.policy": policy})
    s.fill(topic, Batch(records=[Record(key=b"k")]).encode())
    delete(s, version, topic, 1)


@scenario(versions=[0, 2])
def empty_partition(s: Session, version: int) -> None:
    topic = s.topic()
    for wanted in (-1, 0, 1):
        delete(s, version, topic, wanted)


@scenario(versions=[0, 2])
def several(s: Session, version: int) -> None:
    one, two = filled(s), s.topic("two", 2)
    topics = [
        {"name": one, "partitions": [{"partition_index": each, "offset": 2} for each in (0, 5)]},
        {"name": two, "partitions": [{"partition_index": each, "offset": 0} for each in (0, 1)]},
        {"name": s.name("absent"), "partitions": [{"partition_index": 0, "offset": 0}]},
    ]
    s.call("DeleteRecords", version, topics=topics, timeout_ms=10_000)


@scenario
def same_partition_twice(s: Session) -> None:
    parts = [{"partition_index": 0, "offset": each} for each in (4, 2)]
    s.call("DeleteRecords", 2, topics=[{"name": filled(s), "partitions": parts}], timeout_ms=9999)


@scenario
def nothing(s: Session) -> None:
    s.call("DeleteRecords", 2, topics=[], timeout_ms=9999)


@scenario(cases={"zero": 0, "negative": -1})
def odd_timeout(s: Session, timeout_ms: int) -> None:
    parts = [{"partition_index": 0, "offset": 2}]
    topics = [{"name": filled(s), "partitions": parts}]
    s.call("DeleteRecords", 2, topics=topics, timeout_ms=timeout_ms)


@scenario
def internal_topic(s: Session) -> None:
    delete(s, 2, "__consumer_offsets", 0)
