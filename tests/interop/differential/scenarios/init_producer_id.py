"""InitProducerId without a transactional id: fresh ids. With one: what can be told without a
transaction.
"""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session


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
