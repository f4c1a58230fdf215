"""The checker of transactional histories finds what must not be, and nothing else."""

from __future__ import annotations

from millstream.history.checker import PartitionKey
from millstream.sim.transaction_history import (
    End,
    Sight,
    Transaction,
    TransactionHistory,
    check_transactions,
)

A: PartitionKey = ("t", 0)
B: PartitionKey = ("t", 1)


def transaction(number: int, end: End, *, offsets: bool = False) -> Transaction:
    """A transaction with one value in each of two partitions."""
    values = {A: [f"a{number}"], B: [f"b{number}"]}
    return Transaction(
        "p", number, end, values, {f"a{number}", f"b{number}"}, commits_offsets=offsets
    )


def judged(
    *transactions: Transaction,
    a: list[tuple[int, str]],
    b: list[tuple[int, str]],
    sights: tuple[Sight, ...] = (),
    offset: int = 0,
) -> list[str]:
    history = TransactionHistory(list(transactions), list(sights))
    return check_transactions(history, {A: {"one": a}, B: {"one": b}}, {"p": offset})


def test_all_or_nothing_is_fine() -> None:
    assert not judged(
        transaction(1, End.COMMITTED, offsets=True),
        transaction(2, End.ABORTED, offsets=True),
        transaction(3, End.OPEN),
        a=[(0, "a1")],
        b=[(0, "b1")],
        offset=1,
    )
    assert not judged(
        transaction(3, End.OPEN, offsets=True), a=[(0, "a3")], b=[(4, "b3")], offset=3
    )


def test_half_a_transaction_is_found_whatever_its_producer_knows() -> None:
    assert "not read" in judged(transaction(1, End.COMMITTED), a=[(0, "a1")], b=[])[0]
    assert "only ['a1'] is read" in judged(transaction(1, End.OPEN), a=[(0, "a1")], b=[])[0]


def test_what_was_aborted_must_not_be_read() -> None:
    (problem,) = judged(transaction(1, End.ABORTED), a=[(0, "a1")], b=[])
    assert "was aborted" in problem


def test_a_sight_that_did_not_commit_is_found() -> None:
    (problem,) = judged(transaction(1, End.ABORTED), a=[], b=[], sights=(Sight(A, "r", 0, "a1"),))
    assert "r saw 'a1' at 0" in problem


def test_transactions_stand_in_order_and_once() -> None:
    first, second = transaction(1, End.COMMITTED), transaction(2, End.COMMITTED)
    problems = judged(first, second, a=[(0, "a2"), (1, "a1")], b=[(0, "b1"), (1, "b2")])
    assert len(problems) == 1
    assert "stands before" in problems[0]
    twice = judged(first, a=[(0, "a1"), (5, "a1")], b=[(0, "b1")])
    assert twice == ["1 committed values were read twice"]


def test_readers_that_differ_and_unknown_values_are_found() -> None:
    history = TransactionHistory([transaction(1, End.COMMITTED)])
    passes = {
        A: {"large": [(0, "a1")], "small": [(0, "a1"), (3, "x")]},
        B: {"large": [(0, "b1")], "small": [(0, "b1")]},
    }
    problems = check_transactions(history, passes, {})
    assert "small and large do not read the same" in problems[0]
    assert judged(a=[(0, "x")], b=[]) == ["'x' was read and never sent"]


def test_offsets_are_in_force_with_their_transaction() -> None:
    committed = transaction(1, End.COMMITTED, offsets=True)
    aborted = transaction(2, End.ABORTED, offsets=True)
    reads = {"a": [(0, "a1")], "b": [(0, "b1")]}
    assert "is told 2" in judged(committed, aborted, **reads, offset=2)[0]
    assert "is told 0" in judged(committed, aborted, **reads, offset=0)[0]
