"""AddOffsetsToTxn: a group whose offsets a transaction will commit."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.transactions import Transactor

API = "AddOffsetsToTxn"


def ask(x: Transactor, version: int, group: str, **more: object) -> None:
    x.s.call(API, version, **x.identity(group_id=group, **more))


@scenario(versions=API)
def twice(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    x.await_group(s.name("g"))
    ask(x, version, s.name("g"))
    ask(x, version, s.name("g"))


@scenario(versions=API)
def unknown_id(s: Session, version: int) -> None:
    x = Transactor(s)
    x.producer_id, x.epoch = 77_400_001, 0
    ask(x, version, s.name("g"))


@scenario(versions=API, cases={"older": -1, "newer": 1})
def another_epoch(s: Session, step: int, version: int) -> None:
    x = Transactor(s).begin()
    x.begin()
    x.epoch += step
    ask(x, version, s.name("g"))


@scenario(versions=API)
def another_producer_id(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    x.producer_id += 1_000_000
    ask(x, version, s.name("g"))


@scenario(versions=API)
def empty_names(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    x.await_group(s.name("g"))
    ask(x, version, "")
    ask(x, version, s.name("g"), transactional_id="")
