"""What ListTransactions and DescribeTransactions answer of one shard."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millstream.coordinator.transaction.metadata import TransactionMetadata
from millstream.coordinator.transaction.states import BY_TEXT, TransactionState
from millstream.coordinator.transaction.transactions import Transactions
from millstream.model.errors import ErrorCode
from millstream.model.topic import TopicPartition
from millstream.protocol.messages import describe_transactions, list_transactions


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Which transactions are listed: those that fit all of these; empty sets and a negative
    duration fit everything.

    ``states`` are names; a name that no state has fits nothing. ``longer_than_ms`` is the time
    since a transaction began, which is very long for an id that has never begun one.
    """

    states: frozenset[str] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1

    def fits(self, transaction: TransactionMetadata, now_ms: int) -> bool:
        """True if the transaction is to be listed."""
        if self.producer_ids and transaction.producer_id not in self.producer_ids:
            return False
        if self.states and transaction.state.text not in self.states:
            return False
        return self.longer_than_ms < 0 or now_ms - transaction.start_ms > self.longer_than_ms


def unknown_states(states: Iterable[str]) -> list[str]:
    """Return the names that are no states."""
    return [each for each in states if each not in BY_TEXT]


def list_states(
    transactions: Transactions, wanted: TransactionFilter, now_ms: int
) -> list[list_transactions.TransactionState]:
    """List the transactional ids that a filter fits."""
    return [
        list_transactions.TransactionState(
            transactional_id=transactional_id,
            producer_id=transaction.producer_id,
            transaction_state=transaction.state.text,
        )
        for transactional_id, transaction in transactions
        if wanted.fits(transaction, now_ms)
    ]


def describe(
    transactional_id: str,
    transaction: TransactionMetadata,
    partitions: Iterable[TopicPartition],
) -> describe_transactions.TransactionState:
    """Return an id's state; ``partitions`` are those that have no marker yet."""
    by_topic: dict[str, list[int]] = {}
    for each in sorted(partitions):
        by_topic.setdefault(each.topic, []).append(each.partition)
    assert transaction.state is not TransactionState.DEAD
    return describe_transactions.TransactionState(
        error_code=ErrorCode.NONE.code,
        transactional_id=transactional_id,
        transaction_state=transaction.state.text,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
    )
