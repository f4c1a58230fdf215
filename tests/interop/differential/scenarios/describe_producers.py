"""DescribeProducers: the producers that a partition remembers."""

from __future__ import annotations

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

PRODUCER = 77_300_000


def ask(s: Session, topic: str, *partitions: int) -> None:
    s.normaliser.literal_producer_ids.update({PRODUCER, PRODUCER + 1})
    topics = [{"name": topic, "partition_indexes": list(partitions)}]
    s.call("DescribeProducers", 0, topics=topics)


def sent(sequence: int, count: int = 1, producer: int = PRODUCER, epoch: int = 0) -> bytes:
    return batch(*["r"] * count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@scenario
def none(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, batch("a"))
    ask(s, topic, 0)


@scenario
def one(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, sent(0, 3), sent(3, 2))
    ask(s, topic, 0)


@scenario
def newer_epoch(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, sent(0), sent(0, epoch=4))
    ask(s, topic, 0)


@scenario
def two(s: Session) -> None:
    topic = s.topic(partitions=2)
    s.fill(topic, sent(0), sent(7, producer=PRODUCER + 1, epoch=2))
    ask(s, topic, 0, 1)


@scenario
def wrapped_sequence(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, sent(2**31 - 2, 3))
    ask(s, topic, 0)


@scenario
def after_delete_records(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, sent(0, 3))
    part = {"partition_index": 0, "offset": -1}
    s.quiet("DeleteRecords", 1, topics=[{"name": topic, "partitions": [part]}], timeout_ms=5000)
    ask(s, topic, 0)


@scenario
def unknown_topic_and_partition(s: Session) -> None:
    ask(s, s.name("absent"), 0)
    ask(s, s.topic(), 3, -1)


@scenario(cases={"empty": "", "slash": "a/b"})
def illegal_name(s: Session, name: str) -> None:
    ask(s, name, 0)


@scenario
def nothing(s: Session) -> None:
    s.call("DescribeProducers", 0, topics=[])
    ask(s, s.topic())


@scenario
def same_partition_twice(s: Session) -> None:
    topic = s.topic()
    s.fill(topic, sent(0))
    ask(s, topic, 0, 0)
