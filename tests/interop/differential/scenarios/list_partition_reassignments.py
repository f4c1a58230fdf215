"""ListPartitionReassignments: on one broker, where nothing moves."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

API = "ListPartitionReassignments"


def of(topic: str, *partitions: int) -> dict[str, Any]:
    return {"name": topic, "partition_indexes": list(partitions)}


@scenario
def all_moves(s: Session) -> None:
    s.topic()
    s.call(API, 0, topics=None)


@scenario
def chosen(s: Session) -> None:
    topic = s.topic()
    s.call(API, 0, topics=[])
    s.call(API, 0, topics=[of(topic, 0)])
    s.call(API, 0, topics=[of(topic)])


@scenario
def unknown(s: Session) -> None:
    s.call(API, 0, topics=[of(s.name("absent"), 0), of(s.topic(), 7, -1)])


@scenario(cases={"zero": 0, "negative": -1})
def timeout(s: Session, timeout_ms: int) -> None:
    s.call(API, 0, topics=None, timeout_ms=timeout_ms)
