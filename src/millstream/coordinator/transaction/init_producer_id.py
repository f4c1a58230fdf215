"""InitProducerId of a transactional producer: which producer id and epoch it gets.

====================  =============================================================================
state                 outcome
====================  =============================================================================
unknown               a new producer id, epoch 0
Empty, Complete*      the next epoch; a new producer id with epoch 0 where the epochs are used up
Ongoing               the transaction is aborted, its producer is fenced and the answer is
                      CONCURRENT_TRANSACTIONS: the retry finds it ended
Prepare*              CONCURRENT_TRANSACTIONS
====================  =============================================================================

A producer that names its id and epoch (KIP-360) must be the present one, else PRODUCER_FENCED. If
it names the epoch before, it repeats a request that was served, and hears the present epoch again.
Kafka: ``TransactionCoordinator.handleInitProducerId``.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.coordinator.transaction.metadata import TransactionMetadata, is_exhausted
from millstream.coordinator.transaction.states import PREPARED, TransactionState
from millstream.coordinator.transaction.transactions import Transactions
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import NO_PRODUCER_EPOCH


@dataclass(slots=True, unsafe_hash=True)
class ProducerIdAndEpoch:
    """Who a producer is."""

    producer_id: int
    epoch: int


class NeedsProducerId:
    """The response of an operation that has done nothing: it has to be run again with a new
    producer id.
    """


@dataclass(frozen=True, slots=True)
class Given:
    """The state of a producer with its new epoch, and the epoch that it had before."""

    transaction: TransactionMetadata
    epoch_before: int = NO_PRODUCER_EPOCH


def give_epoch(
    transactions: Transactions,
    transactional_id: str,
    named: ProducerIdAndEpoch | None,
    *,
    timeout_ms: int,
    new_producer_id: int | None,
    now_ms: int,
) -> Given | NeedsProducerId | None:
    """Return what the producer becomes; None if its running transaction has to be aborted first.

    ``named`` is what the producer says it is. Raises PRODUCER_FENCED and CONCURRENT_TRANSACTIONS.
    """
    transaction = transactions.get(transactional_id)
    if transaction is None:
        if new_producer_id is None:
            return NeedsProducerId()
        return Given(_new(new_producer_id, timeout_ms, now_ms))
    if named is not None and not _is_known(transaction, named):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is TransactionState.ONGOING:
        return None
    epoch = transaction.producer_epoch
    if named is None or named.epoch == epoch:
        before = NO_PRODUCER_EPOCH if named is None else epoch
        if not is_exhausted(epoch):
            return Given(
                transaction.with_epoch(epoch + 1, timeout_ms=timeout_ms, now_ms=now_ms), before
            )
        if new_producer_id is None:
            return NeedsProducerId()
        return Given(
            transaction.with_epoch(
                0, timeout_ms=timeout_ms, now_ms=now_ms, producer_id=new_producer_id
            ),
            before,
        )
    if named.epoch == transactions.epoch_before(transactional_id, transaction):
        return Given(transaction.with_same_epoch(timeout_ms=timeout_ms, now_ms=now_ms), named.epoch)
    raise KafkaError(ErrorCode.PRODUCER_FENCED)


def _is_known(transaction: TransactionMetadata, named: ProducerIdAndEpoch) -> bool:
    """True for the present producer id, and for the one before if its epochs were used up: its
    producer may not have heard of the new one.
    """
    if named.producer_id == transaction.producer_id:
        return True
    return named.producer_id == transaction.previous_producer_id and is_exhausted(named.epoch)


def _new(producer_id: int, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=producer_id,
        # As Kafka writes it: its first record follows one in memory that has the id already.
        previous_producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        last_update_ms=now_ms,
    )
