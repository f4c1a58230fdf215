"""AlterPartitionReassignments: on one broker, where nothing can move."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

API = "AlterPartitionReassignments"


def move(topic: str, **replicas: list[int] | None) -> dict[str, Any]:
    """``p0=[1]`` moves partition 0 to broker 1, ``p0=None`` cancels its move."""
    return {
        "name": topic,
        "partitions": [
            {"partition_index": int(name[1:]), "replicas": brokers}
            for name, brokers in replicas.items()
        ],
    }


@scenario(versions=API)
def where_it_is(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    s.call(API, version, topics=[move(topic, p0=[1], p1=[1])])
    s.call("ListPartitionReassignments", 0, topics=[{"name": topic, "partition_indexes": [0, 1]}])


@scenario(versions=API)
def nothing(s: Session, version: int) -> None:
    s.call(API, version, topics=[])
    s.call(API, version, topics=[move(s.topic())])


@scenario(versions=API)
def nothing_to_cancel(s: Session, version: int) -> None:
    s.call(API, version, topics=[move(s.topic(), p0=None)])


@scenario(versions=API)
def unknown(s: Session, version: int) -> None:
    topic = s.topic()
    s.call(API, version, topics=[move(s.name("absent"), p0=[1], p1=None), move(topic, p7=[1])])
    s.call(API, version, topics=[move(topic, p7=None)])


REPLICAS: dict[str, list[int]] = {
    "unknown_broker": [2],
    "one_unknown": [1, 2],
    "twice": [1, 1],
    "none": [],
    "negative": [-1],
}


@scenario(cases=REPLICAS, versions=[0, 1])
def replicas(s: Session, brokers: list[int], version: int) -> None:
    s.call(API, version, topics=[move(s.topic(), p0=brokers)])


@scenario(cases=REPLICAS | {"same": [1]})
def replication_factor_is_kept(s: Session, brokers: list[int]) -> None:
    topic = s.topic()
    s.call(API, 1, topics=[move(topic, p0=brokers)], allow_replication_factor_change=False)


@scenario
def kept_factor_of_what_is_not_there(s: Session) -> None:
    topics = [move(s.name("absent"), p0=[1]), move(s.topic(), p3=[1], p0=None)]
    s.call(API, 1, topics=topics, allow_replication_factor_change=False)


@scenario
def named_twice(s: Session) -> None:
    topic = s.topic()
    s.call(API, 1, topics=[move(topic, p0=[1]), move(topic, p0=[1])])
    twice = move(topic, p0=[1])
    twice["partitions"] *= 2
    s.call(API, 1, topics=[twice])


@scenario(cases={"empty": "", "slash": "a/b"})
def illegal_topic_name(s: Session, name: str) -> None:
    s.call(API, 1, topics=[move(name, p0=[1])])


@scenario(cases={"zero": 0, "negative": -1})
def timeout(s: Session, timeout_ms: int) -> None:
    s.call(API, 1, topics=[move(s.topic(), p0=[1])], timeout_ms=timeout_ms)
    s.call(API, 1, topics=[], timeout_ms=timeout_ms, allow_replication_factor_change=False)
