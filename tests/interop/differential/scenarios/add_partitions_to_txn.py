"""AddPartitionsToTxn: partitions that a transaction will write to, from clients and brokers.

Kafka 4.3 never answers a batched request without transactions.
"""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.transactions import Transactor

CLIENT = [0, 1, 2, 3]
BATCHED = [4, 5]
API = "AddPartitionsToTxn"


def ask(x: Transactor, version: int, *topics: tuple[str, list[int]], **more: object) -> None:
    x.s.call(API, version, **(x.partition_fields(version, *topics) | more))


@scenario(versions=API)
def one_and_the_same_again(s: Session, version: int) -> None:
    topic = s.topic(partitions=3)
    x = Transactor(s).begin()
    ask(x, version, (topic, [0]))
    ask(x, version, (topic, [0]))
    ask(x, version, (topic, [1, 2]))


@scenario(versions=API)
def unknown_partition_makes_all_wrong(s: Session, version: int) -> None:
    topic, absent = s.topic(), s.name("absent")
    x = Transactor(s).begin()
    ask(x, version, (topic, [0, 7]))
    ask(x, version, (topic, [0]), (absent, [0]))


@scenario(versions=API)
def unknown_id(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s)
    x.producer_id, x.epoch = 77_400_000, 0
    ask(x, version, (topic, [0]))


@scenario(versions=API, cases={"older": -1, "newer": 1})
def another_epoch(s: Session, step: int, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.begin()
    x.epoch += step
    ask(x, version, (topic, [0]))


@scenario(versions=API)
def another_producer_id(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.producer_id += 1_000_000
    ask(x, version, (topic, [0]))


@scenario(versions=CLIENT)
def empty_id(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    ask(x, version, (topic, [0]), v3_and_below_transactional_id="")


@scenario(versions=API)
def no_partitions(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    ask(x, version)
    ask(x, version, (topic, []))


@scenario(versions=BATCHED)
def verified_only(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    x = Transactor(s).begin()
    x.add(topic, 0)
    transaction = x.identity(topics=[{"name": topic, "partitions": [0, 1]}], verify_only=True)
    s.call(API, version, transactions=[transaction])


@scenario(versions=BATCHED)
def verified_without_a_transaction(s: Session, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    transaction = x.identity(topics=[{"name": topic, "partitions": [0]}], verify_only=True)
    s.call(API, version, transactions=[transaction])


@scenario(versions=BATCHED)
def several_transactions(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    x, y = Transactor(s, "x").begin(), Transactor(s, "y").begin()
    y.epoch += 1
    both = [each.partition_fields(version, (topic, [0, 1]))["transactions"][0] for each in (x, y)]
    s.call(API, version, transactions=both)


@scenario(versions=[3, 5], cases={"committed": True, "aborted": False})
def after_the_end(s: Session, commit: bool, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.write(topic, "a")
    x.end(commit=commit)
    ask(x, version, (topic, [0]))
