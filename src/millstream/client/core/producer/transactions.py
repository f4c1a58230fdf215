"""The state of a transactional producer (KIP-98, KIP-360, KIP-890).

::

    UNINITIALIZED --init--> INITIALIZING --producer id--> READY
    READY         --begin--> IN_TRANSACTION
    IN_TRANSACTION --commit--> COMMITTING --EndTxn answered--> READY
    COMMITTING --prepare: flushed, left to another process--> PREPARED
    IN_TRANSACTION, ABORTABLE_ERROR --abort--> ABORTING --EndTxn answered--> READY
    IN_TRANSACTION, COMMITTING --abortable error, a batch not delivered--> ABORTABLE_ERROR
    any --fatal error--> FATAL_ERROR

There are two generations of the protocol; which one a transaction uses is decided when it begins,
by the level of ``transaction.version`` that the cluster has finalized:

* **Version 1**: a partition is added by AddPartitionsToTxn before the first batch for it is sent,
  a group by AddOffsetsToTxn. The epoch stays the same from one transaction to the next, so
  sequences continue. After an error the epoch is raised by InitProducerId once the transaction has
  been aborted, because batches may be missing between others.
* **Version 2**: Produce and TxnOffsetCommit add their partition themselves, and each EndTxn is
  answered with a raised epoch, so sequences begin at 0 in every transaction and late batches of an
  ended transaction are refused.

This module decides; ``transaction_requests`` asks the coordinators and ``transaction_control`` puts
both and the sender together (Kafka: ``TransactionManager``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn

from millstream.client.core.producer.batch import ProducerBatch
from millstream.client.core.producer.sequences import Sequences
from millstream.client.core.producer.transaction_errors import of_batch
from millstream.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    TransactionAbortedError,
    TransactionError,
    TransactionStateError,
)
from millstream.model.topic import TopicPartition


class TransactionState(Enum):
    """The states of the module's diagram."""

    UNINITIALIZED = auto()
    INITIALIZING = auto()
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    PREPARED = auto()
    ABORTABLE_ERROR = auto()
    FATAL_ERROR = auto()


_WORDS = {
    TransactionState.UNINITIALIZED: "init_transactions() has not been called",
    TransactionState.INITIALIZING: "init_transactions() has not ended: call it again",
    TransactionState.READY: "no transaction is open: call begin_transaction()",
    TransactionState.IN_TRANSACTION: "a transaction is open",
    TransactionState.COMMITTING: "a commit has not ended: call commit_transaction() again",
    TransactionState.PREPARED: "the transaction was prepared: Admin.end_transactions() ends it",
    TransactionState.ABORTING: "an abort has not ended: call abort_transaction() again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """A transaction whose records are all delivered; any process may commit or abort it."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_v2: bool
    """True if it is of version 2, see the module."""


class TransactionManager:
    """One producer's transactions. ``sequences`` gets the producer id and epoch."""

    def __init__(self, transactional_id: str, sequences: Sequences) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionState.UNINITIALIZED
        self.error: TransactionError | None = None
        """Why the state is an error."""
        self.is_v2 = False
        """True if the open transaction is of version 2."""
        self.is_started = False
        """True if the coordinator may know of the open transaction: EndTxn has to be sent."""
        self.needs_new_epoch = False
        """True if the epoch has to be raised before the next transaction."""
        self.new_partitions: dict[TopicPartition, None] = {}
        """Partitions with batches that have to be added first (version 1)."""
        self._adding: set[TopicPartition] = set()
        self._partitions: set[TopicPartition] = set()
        self._sequences = sequences

    @property
    def producer_id(self) -> int:
        """The producer id, −1 before it is known."""
        return self._sequences.identity.producer_id

    @property
    def epoch(self) -> int:
        """The epoch, −1 before it is known."""
        return self._sequences.identity.epoch

    @property
    def has_error(self) -> bool:
        """True if the transaction, or the producer, has failed."""
        return self.error is not None

    @property
    def is_going_on(self) -> bool:
        """True while requests that extend the transaction are of use."""
        return self.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING)

    @property
    def is_open(self) -> bool:
        """True if the transaction has been begun and neither commit nor abort asked for."""
        return self.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE_ERROR)

    # --- the application -------------------------------------------------------------------------

    def begin_init(self) -> None:
        """Begin to initialize; TransactionStateError if that was done before."""
        self._check_error()
        if self.state is not TransactionState.UNINITIALIZED:
            raise TransactionStateError("init_transactions() has been called before")
        self.state = TransactionState.INITIALIZING

    def initialized(self, producer_id: int, epoch: int) -> None:
        """Take the producer id and epoch of InitProducerId; no transaction is open any more."""
        self._sequences.adopt(producer_id, epoch)
        self._clear()

    def begin(self, *, is_v2: bool) -> None:
        """Begin a transaction."""
        self._check_error()
        self._expect(TransactionState.READY)
        self.is_v2 = is_v2
        self.state = TransactionState.IN_TRANSACTION

    def begin_commit(self) -> None:
        """Accept no more records; what was sent is still under way."""
        self._check_error()
        self._expect(TransactionState.IN_TRANSACTION)
        self.state = TransactionState.COMMITTING

    def prepared(self) -> PreparedTransaction | None:
        """Leave the flushed transaction to another process; None if there is nothing to end.

        Raises what ``begin_commit`` and the flush have found.
        """
        self._check_error()
        self._expect(TransactionState.COMMITTING)
        if not self.is_started:
            self._clear()
            return None
        self.state = TransactionState.PREPARED
        return PreparedTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            epoch=self.epoch,
            is_v2=self.is_v2,
        )

    def begin_abort(self) -> None:
        """Accept no more records; those that were not sent are dropped."""
        if self.state is not TransactionState.ABORTABLE_ERROR:
            self._check_error()
            self._expect(TransactionState.IN_TRANSACTION)
        self.state = TransactionState.ABORTING
        self.error = None
        self.new_partitions.clear()

    def check_offsets(self) -> None:
        """Raise unless offsets may be added to the transaction."""
        self._check_error()
        self._expect(TransactionState.IN_TRANSACTION)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Take the answer of EndTxn, −1 where it names no producer; also if it was not needed."""
        if producer_id >= 0:
            self._sequences.adopt(producer_id, epoch)
            self.needs_new_epoch = False
        if not self.needs_new_epoch:
            self._clear()

    def refusal(self) -> Exception:
        """Return the error of a ``send`` that is not permitted now."""
        if self.error is not None:
            return renewed(self.error)
        return TransactionStateError(f"records are sent in a transaction: {self._words()}")

    def _clear(self) -> None:
        self.state = TransactionState.READY
        self.error = None
        self.is_started = False
        self.needs_new_epoch = False
        self.new_partitions.clear()
        self._adding.clear()
        self._partitions.clear()

    def _check_error(self) -> None:
        if self.error is not None:
            raise renewed(self.error)

    def _expect(self, state: TransactionState) -> None:
        if self.state is not state:
            self._refuse()

    def _refuse(self) -> NoReturn:
        raise TransactionStateError(self._words())

    def _words(self) -> str:
        return _WORDS.get(self.state, self.state.name)

    # --- the sender ------------------------------------------------------------------------------

    def may_send(self, topic_partition: TopicPartition) -> bool:
        """Return True if batches for a partition may be sent; else it is added first."""
        if topic_partition in self._partitions:
            return not self.has_error
        if not self.is_going_on:
            return False
        if self.is_v2:
            self._partitions.add(topic_partition)
            self.is_started = True
            return True
        if topic_partition not in self._adding:
            self.new_partitions[topic_partition] = None
        return False

    def drop_reason(self, *, was_sent: bool) -> Exception | None:
        """Return the error to fail a batch with that is not in the network; None to keep it.

        In an abort, what was sent is sent again until its outcome is known: the sequences of the
        next transaction continue behind it. If the epoch is raised anyway that is of no use.
        """
        if self.error is not None:
            return self.error
        if self.state is TransactionState.ABORTING and (not was_sent or self.needs_new_epoch):
            return TransactionAbortedError("the transaction was aborted before these were sent")
        return None

    @property
    def retries_batches(self) -> bool:
        """True while a batch that was not delivered is sent again."""
        return not self.has_error and not (
            self.state is TransactionState.ABORTING and self.needs_new_epoch
        )

    def batch_failed(self, error: Exception) -> None:
        """Record that a batch was not delivered: the transaction is incomplete."""
        if self.state is TransactionState.ABORTING:
            self.needs_new_epoch |= not isinstance(error, TransactionAbortedError)
        elif self.is_going_on:
            self.fail(of_batch(error))

    def batch_acknowledged(self, batch: ProducerBatch) -> bool:
        """Record that a broker has a batch; return True if the transaction may have failed."""
        is_doubted = self._sequences.is_doubted(batch)
        if is_doubted:
            self.topic_recreated(batch.topic_partition)
        return is_doubted

    def topic_recreated(self, topic_partition: TopicPartition) -> None:
        """The log of a partition is another, empty one. What this transaction has in the old one is
        gone, so it cannot be committed; otherwise sequences begin again. Before the first
        acknowledgement there is nothing there, unless one is on its way.
        """
        self._sequences.doubt(topic_partition)
        if not self._sequences.of(topic_partition).has_begun:
            return
        if topic_partition not in self._partitions:
            self._sequences.restart(topic_partition)
        elif self.state is TransactionState.ABORTING:
            self.needs_new_epoch = True
        else:
            self.fail(
                AbortableTransactionError(
                    f"the topic of {topic_partition} was deleted and created again, and records of "
                    "this transaction were in the old one"
                )
            )

    # --- the coordinators ------------------------------------------------------------------------

    def take_new_partitions(self) -> list[TopicPartition]:
        """Return the partitions to add; they are not asked for again."""
        taken = list(self.new_partitions)
        self.new_partitions.clear()
        self._adding.update(taken)
        return taken

    def partitions_added(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Take the answer of AddPartitionsToTxn."""
        self._partitions.update(topic_partitions)
        self.is_started = True

    def fail(self, error: TransactionError) -> None:
        """Enter an error state; a fatal error replaces an abortable one, and nothing else."""
        if self.state is TransactionState.FATAL_ERROR:
            return
        if isinstance(error, FatalTransactionError):
            self.state = TransactionState.FATAL_ERROR
        elif self.is_going_on:
            self.state = TransactionState.ABORTABLE_ERROR
            self.needs_new_epoch = True
        else:
            return
        self.error = error


def renewed(error: TransactionError) -> TransactionError:
    """Return an equal error to raise again, without the traceback of the first time."""
    again = type(error)(str(error), error.error)
    again.__cause__ = error.__cause__
    return again
