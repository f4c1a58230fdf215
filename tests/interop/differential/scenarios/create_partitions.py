"""CreatePartitions: growing a topic, and what cannot be done."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


def grow(s: Session, version: int, name: str, count: int, brokers: Any = None, **more: Any) -> None:
    """Ask for ``count`` partitions; ``brokers`` is a list of replica lists."""
    assignments = None if brokers is None else [{"broker_ids": each} for each in brokers]
    topic = {"name": name, "count": count, "assignments": assignments}
    s.call("CreatePartitions", version, **({"topics": [topic], "timeout_ms": 30_000} | more))


@scenario(versions="CreatePartitions")
def three_from_one(s: Session, version: int) -> None:
    topic = s.topic()
    grow(s, version, topic, 3)
    s.await_topic(topic, 3)
    s.call("Metadata", 9, **s.metadata_of(topic))


COUNTS = {"same": 2, "fewer": 1, "zero": 0, "negative": -1}


@scenario(versions="CreatePartitions", cases=COUNTS)
def wrong_count(s: Session, count: int, version: int) -> None:
    grow(s, version, s.topic(partitions=2), count)


@scenario(versions="CreatePartitions")
def unknown_topic(s: Session, version: int) -> None:
    grow(s, version, s.name("absent"), 3)


@scenario(versions="CreatePartitions")
def validate_only(s: Session, version: int) -> None:
    topic = s.topic()
    grow(s, version, topic, 3, validate_only=True)
    s.call("Metadata", 9, **s.metadata_of(topic))


ASSIGNMENTS: dict[str, list[list[int]]] = {
    "right": [[1], [1]],
    "too_few": [[1]],
    "too_many": [[1], [1], [1]],
    "none": [],
    "unknown_broker": [[1], [5]],
    "no_replicas": [[1], []],
    "same_broker_twice": [[1], [1, 1]],
    "more_replicas": [[1, 2], [1, 2]],
}


@scenario(cases=ASSIGNMENTS, versions=[0, 3])
def assignment(s: Session, brokers: list[list[int]], version: int) -> None:
    grow(s, version, s.topic(), 3, brokers)


@scenario(versions=[0, 3])
def same_topic_twice(s: Session, version: int) -> None:
    topic = s.topic()
    entries = [{"name": topic, "count": each, "assignments": None} for each in (2, 3)]
    s.call("CreatePartitions", version, topics=entries, timeout_ms=9999)


@scenario(versions=[0, 3])
def several(s: Session, version: int) -> None:
    names = [(s.topic("a"), 2), (s.name("absent"), 2), (s.topic("b", 2), 2)]
    entries = [{"name": name, "count": count, "assignments": None} for name, count in names]
    s.call("CreatePartitions", version, topics=entries, timeout_ms=9999)


@scenario(versions=[0, 3])
def nothing(s: Session, version: int) -> None:
    s.call("CreatePartitions", version, topics=[], timeout_ms=9999)


@scenario(cases={"empty": "", "slash": "a/b"})
def illegal_name(s: Session, name: str) -> None:
    grow(s, 3, name, 2)


@scenario(cases={"zero": 0, "negative": -1})
def odd_timeout(s: Session, timeout_ms: int) -> None:
    grow(s, 3, s.topic(), 2, timeout_ms=timeout_ms)


@scenario
def far_too_many(s: Session) -> None:
    grow(s, 3, s.topic(), 100_000, validate_only=True)
