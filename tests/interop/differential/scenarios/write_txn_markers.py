"""WriteTxnMarkers: what coordinators send, and admin clients to end a hanging transaction."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.transactions import ENDS, Transactor

API = "WriteTxnMarkers"


def marker(x: Transactor, topic: str, *indexes: int, **more: Any) -> dict[str, Any]:
    return {
        "producer_id": x.producer_id,
        "producer_epoch": x.epoch,
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": list(indexes or (0,))}],
        "coordinator_epoch": 0,
    } | more


def producers(s: Session, topic: str) -> None:
    s.call("DescribeProducers", 0, topics=[{"name": topic, "partition_indexes": [0]}])


@scenario(versions=API, cases=ENDS)
def ends_an_open_transaction(s: Session, commit: bool, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.write(topic, "a")
    producers(s, topic)
    s.call(API, version, markers=[marker(x, topic, transaction_result=commit)])
    producers(s, topic)


@scenario(versions=API)
def nothing_is_open(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    s.call(API, version, markers=[marker(x, topic)])


@scenario(versions=API, cases={"older": -1, "newer": 1})
def another_epoch(s: Session, step: int, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.begin()
    x.write(topic, "a")
    x.epoch += step
    s.call(API, version, markers=[marker(x, topic)])


@scenario(versions=API)
def older_coordinator(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.write(topic, "a")
    s.call(API, version, markers=[marker(x, topic, coordinator_epoch=5)])
    x.write(topic, "b")
    s.call(API, version, markers=[marker(x, topic, coordinator_epoch=4)])


@scenario(versions=API)
def unknown_partition(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.write(topic, "a")
    s.call(API, version, markers=[marker(x, topic, 0, 9)])


@scenario(versions=API)
def unknown_topic(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    s.call(API, version, markers=[marker(x, s.name("absent"))])


@scenario(versions=API)
def nothing(s: Session, version: int) -> None:
    s.call(API, version, markers=[])
