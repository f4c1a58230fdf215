"""WriteTxnMarkers: what coordinators send, and admin clients to end a hanging transaction."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session
from tests.interop.differential.transactions import ENDS, Transactor

API = "WriteTxnMarkers"
PRODUCER = 77_500_000
_TRANSACTIONAL = 0x10


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


def end(
    s: Session,
    version: int,
    topic: str,
    *,
    producer: int = PRODUCER,
    epoch: int = 0,
    commit: bool = True,
    coordinator_epoch: int = 0,
    partitions: tuple[int, ...] = (0,),
    **more: object,
) -> Answer:
    s.normaliser.literal_producer_ids.add(PRODUCER)
    marker = {
        "producer_id": producer,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": topic, "partition_indexes": list(partitions)}],
        "coordinator_epoch": coordinator_epoch,
        **more,
    }
    return s.call("WriteTxnMarkers", version, markers=[marker])


def describe(s: Session, topic: str) -> None:
    s.call("DescribeProducers", 0, topics=[{"name": topic, "partition_indexes": [0]}])


def begun(s: Session, topic: str) -> tuple[int, int]:
    """Begin a transaction with one record; return the producer's id and epoch."""
    name = s.name("txn")
    s.until(lambda a: a["error_code"] == 0, "FindCoordinator", 1, key=name, key_type=1)
    made = s.until(
        lambda a: a["error_code"] == 0,
        "InitProducerId",
        4,
        transactional_id=name,
        transaction_timeout_ms=60_000,
    )
    producer, epoch = made["producer_id"], made["producer_epoch"]
    s.until(
        lambda a: (
            a["results_by_topic_v3_and_below"][0]["results_by_partition"][0]["partition_error_code"]
            == 0
        ),
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[{"name": topic, "partitions": [0]}],
    )
    records = batch(
        "r",
        attributes=_TRANSACTIONAL,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=0,
    )
    s.produce(records, topic=topic, version=9, transactional_id=name)
    return producer, epoch


def late(s: Session, topic: str, version: int, producer: int, epoch: int) -> None:
    """Write one more record of a transaction that has ended."""
    records = batch(
        "late",
        attributes=_TRANSACTIONAL,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=1,
    )
    s.produce(records, topic=topic, version=version, transactional_id=s.name("txn"))


@scenario(cases={"the_same_epoch": 0, "a_larger_epoch": 1})
def of_version_2(s: Session, larger_by: int) -> None:
    """The epoch grows with each end while a transaction is open; a repeated marker may have it."""
    topic = s.topic()
    producer, epoch = begun(s, topic)
    for _ in range(2):
        end(s, 2, topic, producer=producer, epoch=epoch + larger_by, transaction_version=2)
        describe(s, topic)


@scenario(versions=[9, 11])
def a_write_after_the_end(s: Session, version: int) -> None:
    """The coordinator holds the transaction for open, and verifies the write."""
    topic = s.topic()
    producer, epoch = begun(s, topic)
    end(s, 1, topic, producer=producer, epoch=epoch, commit=False)
    late(s, topic, version, producer, epoch)


@scenario(versions=[9, 11, 12])
def a_write_of_an_older_epoch(s: Session, version: int) -> None:
    topic = s.topic()
    producer, epoch = begun(s, topic)
    end(s, 1, topic, producer=producer, epoch=epoch + 3, commit=False)
    late(s, topic, version, producer, epoch)
