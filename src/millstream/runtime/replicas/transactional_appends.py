"""The transactional batches that are written into one partition.

The batch that begins a transaction here waits for its verification (``transaction_verification``),
unless the coordinator is on this broker and can say at once that all is well, and what the same
producer sends meanwhile waits behind it, so its order holds; nobody else's batches wait for it.
Batches that follow share the verification of the first one. A batch that has
to be prepared (``admission``) waits in its producer's queue for that as well; a batch of an open
transaction of its own epoch is appended at once.

A marker that comes while the coordinator is asked makes the answer worthless, for it may be about
the transaction that has ended: the coordinator is asked again. When a batch is due it is checked
once more (``LogAppender.check_verified``). Kafka: ``ReplicaManager.handleProduceAppend``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch
from millstream.records.limits import ProduceLimits
from millstream.runtime.replicas.admission import AdmissionQueue, NotAdmittedError, Preparer
from millstream.runtime.replicas.transaction_verification import (
    TransactionalProducer,
    TransactionSupport,
    TransactionVerifier,
)
from millstream.storage.log import AppendResult, VerificationState
from millstream.storage.producer_state import ProducerStateManager

MAX_QUESTIONS: Final = 10
"""How often the coordinator is asked for one transaction, whatever comes between."""

_TO_BE_TRIED_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""Errors of the coordinator after which a producer sends its batch again if it is told
NOT_ENOUGH_REPLICAS, which older ones know as retriable, and which makes none look for another
leader."""

Verified: TypeAlias = "Deferred[VerificationState | None]"
"""A verification; None where the transaction is open meanwhile, or need not be verified."""

AppendNow: TypeAlias = Callable[[Batch, VerificationState | None, bool], AppendResult]
"""Appends a batch as leader, now, given the verification that it has waited for, and whether each
end of its transactions bumps the epoch."""


class TransactionVerification:
    """Verifies the transactions of one partition. ``producers`` returns the producers of its log.

    ``verifier`` asks the coordinators.
    """

    __slots__ = ("_clock", "_producers", "_topic_partition", "verifier")

    def __init__(
        self,
        verifier: TransactionVerifier,
        clock: Clock,
        topic_partition: TopicPartition,
        producers: Callable[[], ProducerStateManager],
    ) -> None:
        self.verifier = verifier
        self._clock = clock
        self._topic_partition = topic_partition
        self._producers = producers

    def is_needed(self, producer: TransactionalProducer) -> bool:
        """False while the producer's transaction is open here, and where nothing is verified."""
        return self.verifier.is_needed(
            producer.support
        ) and not self._producers().is_in_transaction(producer.producer_id, producer.producer_epoch)

    def at_once(
        self, producer: TransactionalProducer, base_sequence: int
    ) -> VerificationState | None:
        """Return the verification of a producer whose coordinator is on this broker and has nothing
        to wait for; None where it has to be asked, which says why it refuses, too.
        """
        # What adds partitions asks for all of a request together.
        if producer.support.bumps_epoch or not self.verifier.is_verified(
            producer, self._topic_partition
        ):
            return None
        try:
            return self._producers().begin_verification(
                producer.producer_id, producer.producer_epoch, base_sequence, self._clock.now_ms()
            )
        except KafkaError:
            return None

    def begin(self, producer: TransactionalProducer, base_sequence: int) -> Verified:
        """Ask the coordinator, again where the transaction before is still being ended.

        Fails with a KafkaError: see :meth:`TransactionVerifier.verify`.
        """
        return spawn(self._verify(producer, base_sequence))

    def is_current(self, producer: TransactionalProducer, verified: Verified) -> bool:
        """True if a verification counts, or is going on."""
        if not verified.done:
            return True
        try:
            state = verified.result()
        except KafkaError:
            return False
        return (
            state is not None and self._producers().verification_of(producer.producer_id) is state
        )

    async def _verify(
        self, producer: TransactionalProducer, base_sequence: int
    ) -> VerificationState | None:
        give_up_ms = self._clock.monotonic_ms() + self.verifier.retry_for_ms
        for _ in range(MAX_QUESTIONS):
            state = self._producers().begin_verification(
                producer.producer_id,
                producer.producer_epoch,
                base_sequence,
                self._clock.now_ms(),
            )
            if state is None:
                return None
            try:
                await self.verifier.verify(producer, self._topic_partition)
            except KafkaError as error:
                # A write is too large to be sent again while the transaction before it is ended.
                waits = producer.support.bumps_epoch and self._clock.monotonic_ms() < give_up_ms
                if error.error is not ErrorCode.CONCURRENT_TRANSACTIONS or not waits:
                    raise
                await self._pause()
                continue
            if self._producers().verification_of(producer.producer_id) is state:
                return state
        raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "markers came between all answers")

    def _pause(self) -> Deferred[None]:
        over: Deferred[None] = Deferred()
        self._clock.call_later(self.verifier.retry_backoff_ms, lambda: over.complete(None))
        return over


@dataclass(slots=True)
class _ProducerQueue:
    """The batches of one producer that wait, and the verification that they share."""

    admission: AdmissionQueue
    producer: TransactionalProducer
    verified: Verified | None = None


class TransactionalAppends:
    """Lets the transactional batches of clients wait, in one partition, for what they need."""

    __slots__ = ("_preparer", "_queues", "verification")

    def __init__(self, verification: TransactionVerification, preparer: Preparer) -> None:
        self.verification = verification
        self._preparer = preparer
        self._queues: dict[int, _ProducerQueue] = {}
        """By producer id, of those whose batches wait."""

    def append(
        self,
        batch: Batch,
        transactional_id: str,
        version: int,
        limits: ProduceLimits,
        append: AppendNow,
    ) -> AppendResult | Deferred[AppendResult]:
        """Call ``append`` with a batch of this ``version`` of Produce once it may be appended, now
        or later.

        Fails, or raises, with a KafkaError: what the coordinator says, and what ``append`` refuses.
        """
        support = TransactionSupport.of_produce(version)
        producer = TransactionalProducer(
            transactional_id, batch.producer_id, batch.producer_epoch, support
        )
        bumps_epoch = support.bumps_epoch
        queue = self._queues.get(producer.producer_id)
        is_needed = self.verification.is_needed(producer)
        if queue is None and not limits.needs_preparation(batch):
            if not is_needed:
                return append(batch, None, bumps_epoch)
            state = self.verification.at_once(producer, batch.base_sequence)
            if state is not None:
                return append(batch, state, bumps_epoch)
        if queue is None:
            admission = AdmissionQueue(self._preparer.budget)
            queue = self._queues[producer.producer_id] = _ProducerQueue(admission, producer)
        verified: Verified | None = None
        if is_needed:
            verified = queue.verified
            if (
                verified is None
                or queue.producer != producer
                or not self.verification.is_current(producer, verified)
            ):
                verified = self.verification.begin(producer, batch.base_sequence)
                queue.verified, queue.producer = verified, producer
        outcome = queue.admission.admit(
            batch.size,
            lambda: spawn(_ready(verified, self._preparer.prepared(batch, limits), producer)),
            lambda prepared: append(
                prepared, None if verified is None else verified.result(), bumps_epoch
            ),
        )
        outcome.on_done(lambda _: self._forget_when_empty(producer.producer_id))
        return outcome

    def refuse_all(self, error: KafkaError) -> None:
        """Answer every batch that waits with ``error``."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            queue.admission.refuse_all(error)

    def _forget_when_empty(self, producer_id: int) -> None:
        queue = self._queues.get(producer_id)
        if queue is not None and not queue.admission.entries:
            del self._queues[producer_id]


async def _ready(
    verified: Verified | None, prepared: Deferred[Batch], producer: TransactionalProducer
) -> Batch:
    if verified is not None:
        try:
            await verified
        except KafkaError as error:
            raise _append_error(error, producer) from error
    return await prepared


def _append_error(error: KafkaError, producer: TransactionalProducer) -> KafkaError:
    """Return what a producer hears whose batch could not be verified."""
    code = error.error
    if code is ErrorCode.INVALID_TXN_STATE:
        return NotAdmittedError(code, "Partition was not added to the transaction")
    is_ending = code is ErrorCode.CONCURRENT_TRANSACTIONS
    # Clients of version 2 know that the transaction before may still be ending.
    if code in _TO_BE_TRIED_AGAIN or (is_ending and not producer.support.bumps_epoch):
        return NotAdmittedError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {code.name}",
        )
    return NotAdmittedError(code, error.message)
