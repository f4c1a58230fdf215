"""The produced batches of one partition that cannot be appended at once.

A batch waits for its preparation (``admission``), and one that begins a transaction for its
verification (``transactional_appends``). When it is due, whether the partition may still be written
to is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.records.batch import Batch
from millstream.runtime.replicas.admission import AdmissionQueue, Preparer
from millstream.storage.log import AppendResult, VerificationState

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition
    from millstream.runtime.replicas.transactional_appends import TransactionalAppends


class WaitingAppends:
    """What waits to be appended to one partition; made when a batch has to wait for the first
    time.
    """

    __slots__ = ("_partition", "_preparer", "_transactional", "admission")

    def __init__(self, partition: Partition, preparer: Preparer) -> None:
        self._partition = partition
        self._preparer = preparer
        self.admission = AdmissionQueue(preparer.budget)
        self._transactional: TransactionalAppends | None = None
        """Made when a transaction writes here for the first time."""

    def admit(self, batch: Batch, acks: int) -> Deferred[AppendResult]:
        """Let a batch wait until it is prepared and all before it are appended."""
        partition, preparer = self._partition, self._preparer
        limits = partition.limits

        def append(prepared: Batch) -> AppendResult:
            partition.check_write(acks)
            return partition.append(prepared, partition.clock.now_ms())

        return self.admission.admit(batch.size, lambda: preparer.prepared(batch, limits), append)

    def append_transactional(
        self, batch: Batch, acks: int, version: int, transactional_id: str | None
    ) -> AppendResult | Deferred[AppendResult]:
        """Append a batch of a transaction, once it is verified where it begins one.

        Fails, or raises, with a KafkaError: INVALID_TXN_STATE without a ``transactional_id``, and
        as :meth:`TransactionalAppends.append`.
        """
        if transactional_id is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "no transaction is named")
        partition, transactions = self._partition, self.transactions
        is_required = transactions.verification.verifier.is_required

        def append(
            prepared: Batch, verified: VerificationState | None, bumps_epoch: bool
        ) -> AppendResult:
            partition.check_write(acks)
            if is_required:
                appender = partition.log.appender
                appender.check_verified(prepared, verified, bumps_epoch=bumps_epoch)
            return partition.append(prepared, partition.clock.now_ms())

        return transactions.append(batch, transactional_id, version, partition.limits, append)

    @property
    def transactions(self) -> TransactionalAppends:
        """What lets transactional writes wait for their verification, made at first use.

        NOT_ENOUGH_REPLICAS where nothing verifies transactions.
        """
        if self._transactional is None:
            from millstream.runtime.replicas.transactional_appends import (
                TransactionalAppends,
                TransactionVerification,
            )

            new_verifier = self._preparer.new_verifier
            if new_verifier is None:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "nothing verifies transactions")
            partition = self._partition
            verification = TransactionVerification(
                new_verifier(),
                partition.clock,
                partition.topic_partition,
                lambda: partition.log.producers.state,
            )
            self._transactional = TransactionalAppends(verification, self._preparer)
        return self._transactional

    def refuse_all(self, error: KafkaError) -> None:
        """Answer every batch that waits with ``error``."""
        self.admission.refuse_all(error)
        if self._transactional is not None:
            self._transactional.refuse_all(error)
