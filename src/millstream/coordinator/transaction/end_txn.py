"""EndTxn: whether a transaction may be committed or aborted, and what becomes of it.

Transaction version 1 (EndTxn up to version 4): the producer's epoch must be the present one.

==================  ==============================  ==============================
state               commit                          abort
==================  ==============================  ==============================
Ongoing             PrepareCommit                   PrepareAbort
PrepareCommit       CONCURRENT_TRANSACTIONS         CONCURRENT_TRANSACTIONS
PrepareAbort        CONCURRENT_TRANSACTIONS         CONCURRENT_TRANSACTIONS
CompleteCommit      success, nothing changes        INVALID_TXN_STATE
CompleteAbort       INVALID_TXN_STATE               success, nothing changes
Empty               INVALID_TXN_STATE               INVALID_TXN_STATE
==================  ==============================  ==============================

Version 2 (EndTxn from version 5 on): each end bumps the epoch, so a request with the epoch before
(*again*: a retry) can be told from one with the present epoch (*now*). A producer that does not
know whether it has written anything aborts; then there is an abort without partitions.

==================  ============================================  ===============================
state               commit: again, now                            abort: again, now
==================  ============================================  ===============================
Ongoing             PRODUCER_FENCED, PrepareCommit                PRODUCER_FENCED, PrepareAbort
PrepareCommit       CONCURRENT_TRANSACTIONS                       CONCURRENT_TRANSACTIONS
PrepareAbort        CONCURRENT_TRANSACTIONS                       CONCURRENT_TRANSACTIONS
CompleteCommit      success, INVALID_TXN_STATE                    INVALID_TXN_STATE, PrepareAbort
CompleteAbort       INVALID_TXN_STATE, INVALID_TXN_STATE          success, PrepareAbort
Empty               PRODUCER_FENCED, INVALID_TXN_STATE            PRODUCER_FENCED, PrepareAbort
==================  ============================================  ===============================

Kafka: ``TransactionCoordinator.endTransaction``, ``endTransactionWithTV1``.
"""

from __future__ import annotations

from typing import Final

from millstream.coordinator.transaction.init_producer_id import NeedsProducerId, ProducerIdAndEpoch
from millstream.coordinator.transaction.metadata import (
    EPOCH_BUMP,
    TransactionMetadata,
    is_exhausted,
)
from millstream.coordinator.transaction.states import PREPARED, TransactionState
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.producer import MAX_PRODUCER_EPOCH, NO_PRODUCER_ID

_COMPLETE: Final = {
    TransactionState.COMPLETE_COMMIT: True,
    TransactionState.COMPLETE_ABORT: False,
}


def end_version_1(
    transaction: TransactionMetadata, producer: ProducerIdAndEpoch, *, commit: bool, now_ms: int
) -> TransactionMetadata | None:
    """Return the prepared state; None if the transaction has ended so already."""
    _check_producer_id(transaction, producer)
    if producer.epoch != transaction.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    _check_completed(transaction)
    if transaction.state is TransactionState.ONGOING:
        return transaction.prepared(commit=commit, now_ms=now_ms, client_version=0)
    _check_outcome(transaction, commit=commit)
    return None


def end_version_2(
    transaction: TransactionMetadata,
    producer: ProducerIdAndEpoch,
    *,
    commit: bool,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata | NeedsProducerId | None:
    """Return the prepared state; None if the request is the retry of one that was served."""
    is_after_rotation = (
        transaction.previous_producer_id == producer.producer_id
        and producer.epoch == MAX_PRODUCER_EPOCH - 1
        and transaction.producer_epoch == 0
    )
    if not is_after_rotation:
        _check_producer_id(transaction, producer)
    _check_completed(transaction)
    # An epoch that version 1 bumped is a fence, and so is the last of all: who has the one before
    # is no retry.
    is_bumped = transaction.client_version >= EPOCH_BUMP
    is_retry = is_after_rotation or (
        is_bumped
        and producer.epoch + 1 == transaction.producer_epoch
        and not transaction.is_last_fence
    )
    is_now = producer.epoch == transaction.producer_epoch
    state = transaction.state
    if not _is_valid_epoch(state, is_retry=is_retry, is_now=is_now):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_retry:
        _check_outcome(transaction, commit=commit)
        return None
    if commit and state is not TransactionState.ONGOING:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    next_producer_id = NO_PRODUCER_ID
    if is_exhausted(transaction.producer_epoch):
        if new_producer_id is None:
            return NeedsProducerId()
        next_producer_id = new_producer_id
    return transaction.prepared(
        commit=commit,
        now_ms=now_ms,
        client_version=EPOCH_BUMP,
        next_producer_id=next_producer_id,
    )


def _is_valid_epoch(state: TransactionState, *, is_retry: bool, is_now: bool) -> bool:
    if state in _COMPLETE:
        return is_retry or is_now
    return is_now


def _check_producer_id(transaction: TransactionMetadata, producer: ProducerIdAndEpoch) -> None:
    if transaction.producer_id != producer.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def _check_completed(transaction: TransactionMetadata) -> None:
    """Raise CONCURRENT_TRANSACTIONS while markers of a decided transaction are being written."""
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _check_outcome(transaction: TransactionMetadata, *, commit: bool) -> None:
    """Raise INVALID_TXN_STATE unless the transaction has ended so."""
    if _COMPLETE.get(transaction.state) is not commit:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
