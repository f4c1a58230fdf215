"""InitProducerId without a transactional id: fresh ids. With one: what can be told without a
transaction.
"""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.transactions import BOTH, Transactor


def ask(s: Session, version: int, **more: object) -> None:
    fields: dict[str, object] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    s.call("InitProducerId", version, **(fields | more))


@scenario(versions="InitProducerId")
def fresh_ids_differ(s: Session, version: int) -> None:
    ask(s, version)
    ask(s, version)


@scenario(versions="InitProducerId", cases={"zero": 0, "negative": -1, "max": 2**31 - 1})
def timeout_without_a_transaction(s: Session, timeout_ms: int, version: int) -> None:
    """The time-out says nothing without a transactional id."""
    ask(s, version, transaction_timeout_ms=timeout_ms)


@scenario(
    versions=[3, 4, 5],
    cases={
        "both": (77_200_000, 3),
        "id_only": (77_200_000, -1),
        "epoch_only": (-1, 3),
        "max_epoch": (77_200_000, 32767),
        "negative": (-2, -2),
    },
)
def id_given_without_a_transaction(s: Session, identity: tuple[int, int], version: int) -> None:
    ask(s, version, producer_id=identity[0], producer_epoch=identity[1])


@scenario(versions="InitProducerId")
def empty_transactional_id(s: Session, version: int) -> None:
    ask(s, version, transactional_id="")


@scenario(versions="InitProducerId")
def one_epoch_after_the_other(s: Session, version: int) -> None:
    x = Transactor(s)
    s.call("InitProducerId", version, **x.init_fields())
    s.call("InitProducerId", version, **x.init_fields())


@scenario(
    versions="InitProducerId", cases={"zero": 0, "negative": -1, "max": 900_000, "over": 900_001}
)
def timeout_of_a_transaction(s: Session, timeout_ms: int, version: int) -> None:
    x = Transactor(s)
    s.call("InitProducerId", version, **x.init_fields(transaction_timeout_ms=timeout_ms))


@scenario(versions=[3, 4, 5], cases={"same": 0, "older": -1, "much_older": -2, "newer": 1})
def with_an_epoch(s: Session, step: int, version: int) -> None:
    """A producer that bumps its own epoch, a retry of it, and one that is fenced."""
    x = Transactor(s).begin()
    x.begin()
    x.begin()
    named = {"producer_id": x.producer_id, "producer_epoch": x.epoch + step}
    s.call("InitProducerId", version, **x.init_fields(**named))
    s.call("InitProducerId", version, **x.init_fields(**named))


@scenario(versions=[3, 5])
def with_another_producer_id(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    named = {"producer_id": x.producer_id + 1_000_000, "producer_epoch": x.epoch}
    s.call("InitProducerId", version, **x.init_fields(**named))


@scenario(versions=[1, 4, 5], cases=BOTH)
def while_a_transaction_is_open(s: Session, generation: int, version: int) -> None:
    topic = s.topic()
    x = Transactor(s, version=generation).begin()
    x.write(topic, "a")
    s.call("InitProducerId", version, **x.init_fields())
    x.await_state("CompleteAbort")
    s.call("InitProducerId", version, **x.init_fields())
