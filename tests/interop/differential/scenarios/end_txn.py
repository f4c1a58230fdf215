"""EndTxn: commit and abort, in every state, from both generations of clients."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.transactions import BOTH, ENDS, Transactor

API = "EndTxn"


def ask(x: Transactor, version: int, *, commit: bool, **more: object) -> None:
    x.s.call(API, version, **x.identity(committed=commit, **more))


def generation(version: int) -> int:
    return 2 if version >= 5 else 1


@scenario(versions=API, cases=ENDS)
def empty(s: Session, commit: bool, version: int) -> None:
    ask(Transactor(s, version=generation(version)).begin(), version, commit=commit)


@scenario(versions=API, cases=ENDS)
def one_write_and_the_end_again(s: Session, commit: bool, version: int) -> None:
    topic = s.topic()
    x = Transactor(s, version=generation(version)).begin()
    x.write(topic, "a")
    ask(x, version, commit=commit)
    x.await_state("CompleteCommit" if commit else "CompleteAbort")
    ask(x, version, commit=commit)
    ask(x, version, commit=not commit)


@scenario(versions=API, cases=ENDS)
def added_and_not_written(s: Session, commit: bool, version: int) -> None:
    topic = s.topic()
    x = Transactor(s).begin()
    x.add(topic, 0)
    ask(x, version, commit=commit)


@scenario(versions=API, cases=ENDS)
def unknown_id(s: Session, commit: bool, version: int) -> None:
    x = Transactor(s)
    x.producer_id, x.epoch = 77_400_002, 0
    ask(x, version, commit=commit)


@scenario(versions=API, cases={"older": -1, "newer": 1, "much_older": -2})
def another_epoch(s: Session, step: int, version: int) -> None:
    topic = s.topic()
    x = Transactor(s, version=generation(version)).begin()
    x.begin()
    x.begin()
    x.write(topic, "a")
    x.epoch += step
    ask(x, version, commit=True)


@scenario(versions=API)
def another_producer_id(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    x.producer_id += 1_000_000
    ask(x, version, commit=True)


@scenario(versions=API)
def empty_transactional_id(s: Session, version: int) -> None:
    x = Transactor(s).begin()
    ask(x, version, commit=True, transactional_id="")


@scenario(cases=BOTH)
def several_transactions_in_a_row(s: Session, version: int) -> None:
    """What a reader then finds: markers, epochs and offsets."""
    topic = s.topic()
    x = Transactor(s, version=version).begin()
    for number, commit in enumerate((True, False, True)):
        x.write(topic, f"value {number}")
        x.end(commit=commit)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    s.call(
        "Fetch",
        12,
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=0,
        max_bytes=1 << 20,
        isolation_level=1,
        topics=[{"topic": topic, "partitions": [part]}],
    )
