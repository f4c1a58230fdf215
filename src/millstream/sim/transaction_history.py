"""What transactional clients of a simulation did and saw, and what of it must not be.

* **Atomicity**: of a transaction a committed reader sees every record, or none; all of one that was
  acknowledged as committed, none of one that was acknowledged as aborted or given up before its end
  was asked for. No reader, with small or large fetches, of any replica, ever sees a record of a
  transaction that did not commit.
* **Order**: the transactions of one producer stand in their order.
* **Offsets** that a transaction committed are in force exactly if the transaction is.
* **Fencing**: nothing that an older incarnation sends after a newer one was told its epoch is
  accepted (:mod:`millstream.sim.transactions` looks at that itself).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millstream.history.checker import PartitionKey


class End(Enum):
    """How a transaction ended, as far as its producer knows."""

    OPEN = "open"
    """Nobody knows: its commit was asked for and not answered."""
    COMMITTED = "committed"
    ABORTED = "aborted"


@dataclass(slots=True)
class Transaction:
    """One transaction of one producer; ``number`` grows with each."""

    process: str
    number: int
    end: End = End.ABORTED
    """ABORTED until its commit is asked for."""
    values: dict[PartitionKey, list[str]] = field(default_factory=dict)
    """What it was acknowledged to have written, in order."""
    attempted: set[str] = field(default_factory=set)
    """All that it tried to write."""
    commits_offsets: bool = False
    """True once TxnOffsetCommit of ``number`` was acknowledged."""

    @property
    def name(self) -> str:
        """Which one it is, for a sentence."""
        return f"transaction {self.number} of {self.process}"


@dataclass(frozen=True, slots=True)
class Sight:
    """One record that a committed reader saw."""

    partition: PartitionKey
    reader: str
    offset: int
    value: str


@dataclass
class TransactionHistory:
    """Everything that transactional clients did, in order."""

    transactions: list[Transaction] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)


def check_transactions(
    history: TransactionHistory,
    passes: Mapping[PartitionKey, Mapping[str, Sequence[tuple[int, str]]]],
    offsets: Mapping[str, int],
) -> list[str]:
    """Return what is wrong, a sentence each.

    ``passes`` are whole readings in the end: of each partition, by the name of the reader, offset
    and value of each committed record. ``offsets`` are what the producers' groups have committed in
    the end, by process, 0 for nothing.
    """
    problems = list(_check_passes(passes))
    first = {partition: next(iter(readers.values())) for partition, readers in passes.items()}
    committed = {
        value: (partition, offset) for partition, read in first.items() for offset, value in read
    }
    count = sum(len(read) for read in first.values())
    if count != len(committed):
        problems.append(f"{count - len(committed)} committed values were read twice")
    problems += _check_sights(history, committed)
    in_force: dict[str, int] = defaultdict(int)
    last: dict[tuple[str, PartitionKey], int] = {}
    known: set[str] = set()
    for transaction in history.transactions:
        known |= transaction.attempted
        problems += _check_transaction(transaction, committed, last)
        is_there = any(value in committed for value in transaction.attempted)
        if is_there and transaction.commits_offsets:
            in_force[transaction.process] = transaction.number
    problems += (f"{value!r} was read and never sent" for value in committed if value not in known)
    for process, offset in offsets.items():
        if offset != in_force[process]:
            problems.append(
                f"{process} has committed the offset {in_force[process]} with its transactions, "
                f"and is told {offset}"
            )
    return problems


def _check_passes(
    passes: Mapping[PartitionKey, Mapping[str, Sequence[tuple[int, str]]]],
) -> Iterator[str]:
    """Every reader reads the same, whatever the size of its fetches and whichever the replica."""
    for partition, readers in passes.items():
        first, *others = readers
        for name in others:
            if list(readers[name]) != list(readers[first]):
                differing = sorted(set(readers[name]) ^ set(readers[first]))[:4]
                yield f"{name} and {first} do not read the same in {partition}: {differing}"


def _check_sights(
    history: TransactionHistory, committed: Mapping[str, tuple[PartitionKey, int]]
) -> Iterator[str]:
    """What a committed reader has seen stays, where it was."""
    for sight in history.sights:
        if committed.get(sight.value) != (sight.partition, sight.offset):
            yield (
                f"{sight.reader} saw {sight.value!r} at {sight.offset} of {sight.partition}; in "
                f"the end it is at {committed.get(sight.value)}"
            )


def _check_transaction(
    transaction: Transaction,
    committed: Mapping[str, tuple[PartitionKey, int]],
    last: dict[tuple[str, PartitionKey], int],
) -> Iterator[str]:
    """Check one transaction; ``last`` has the highest offsets of its producer's earlier ones."""
    there = {value for value in transaction.attempted if value in committed}
    acknowledged = {value for values in transaction.values.values() for value in values}
    if transaction.end is End.ABORTED and there:
        yield f"{transaction.name} was aborted, and {sorted(there)[:3]} is read as committed"
    elif transaction.end is End.COMMITTED and there != acknowledged:
        missing = sorted(acknowledged ^ there)[:3]
        yield f"{transaction.name} was committed, and {missing} is not read, or not its own"
    elif there and there != acknowledged:
        yield f"of {transaction.name} only {sorted(there)[:3]} is read, of {len(acknowledged)}"
    for partition, values in transaction.values.items():
        for value in values:
            if value not in committed:
                continue
            offset = committed[value][1]
            key = (transaction.process, partition)
            if offset <= last.get(key, -1):
                yield f"{value!r} of {transaction.name} stands before what was sent earlier"
            last[key] = offset
