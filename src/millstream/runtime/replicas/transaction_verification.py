"""Asks transaction coordinators whether a partition belongs to a producer's transaction (KIP-890).

The batch that begins a transaction in a partition is appended only after the coordinator of its
transactional id has said that the partition is part of the transaction. The request is
AddPartitionsToTxn as brokers send it: older clients have added the partition themselves, so it is
verified only; those of transaction version 2 have it added here::

    request                         what the coordinator is asked   TRANSACTION_ABORTABLE
    Produce 3-10, TxnOffsetCommit 0-3    is it in the transaction?  becomes INVALID_TXN_STATE
    Produce 11,   TxnOffsetCommit 4      is it in the transaction?  is passed on
    Produce 12+,  TxnOffsetCommit 5+     add it                     is passed on

Requests go to a coordinator's broker one after the other; partitions and transactions that come
meanwhile share the next one. Of one transactional id a newer epoch fences an older one that still
waits here. Kafka: ``AddPartitionsToTxnManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeAlias

from millstream.config.dynamic import DynamicConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TRANSACTION_STATE_TOPIC, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from millstream.runtime.metadata.metadata_cache import MetadataCache

_log = logging.getLogger(__name__)

RequestSender: TypeAlias = Callable[[BrokerId, Request, int], "Deferred[Response]"]

OwnCoordinator: TypeAlias = Callable[[str, ProducerIdAndEpoch, TopicPartition], bool]
"""True where the transaction coordinator on this broker says at once, without a request, that a
partition is in the running transaction of a transactional id; False says nothing."""


class TransactionSupport(Enum):
    """What the client that writes knows of transactions (Kafka:
    ``TransactionSupportedOperation``).
    """

    DEFAULT_ERROR = "default error"
    GENERIC_ERROR = "generic error"
    """It knows TRANSACTION_ABORTABLE."""
    ADD_PARTITION = "add partition"
    """Its partitions are added by its writes, and each end of a transaction bumps its epoch."""

    @property
    def bumps_epoch(self) -> bool:
        """True for transaction version 2."""
        return self is TransactionSupport.ADD_PARTITION

    @classmethod
    def of_produce(cls, version: int) -> TransactionSupport:
        """Return what a client of this version of Produce knows."""
        if version < 11:
            return cls.DEFAULT_ERROR
        return cls.ADD_PARTITION if version > 11 else cls.GENERIC_ERROR

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> TransactionSupport:
        """Return what a client of this version of TxnOffsetCommit knows."""
        if version < 4:
            return cls.DEFAULT_ERROR
        return cls.ADD_PARTITION if version > 4 else cls.GENERIC_ERROR


@dataclass(slots=True, unsafe_hash=True)
class TransactionalProducer:
    """Who writes: the producer of one transactional id, in one epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    support: TransactionSupport


@dataclass(slots=True)
class _Question:
    """What one producer's transaction is asked for; the Deferreds of each partition."""

    producer: TransactionalProducer
    partitions: dict[TopicPartition, list[Deferred[None]]] = field(default_factory=dict)

    def fail(self, code: ErrorCode) -> None:
        for topic_partition in list(self.partitions):
            self.settle(topic_partition, code)

    def settle(self, topic_partition: TopicPartition, code: ErrorCode) -> None:
        for outcome in self.partitions.pop(topic_partition, ()):
            try:
                if code is ErrorCode.NONE:
                    outcome.complete(None)
                else:
                    outcome.fail(KafkaError(code))
            except Exception:  # of whoever was told: the others are told all the same
                _log.exception("a transactional write could not go on")


@dataclass(slots=True)
class _Coordinator:
    """A broker that coordinates transactions: what waits for its next request."""

    waiting: dict[str, _Question] = field(default_factory=dict)
    is_asked: bool = False
    """A request is on its way, or about to be sent."""


class TransactionVerifier:
    """Verifies and adds partitions for all partitions of a broker. ``send_request`` sends a request
    to a broker, this one included; ``own_coordinator`` may know the answer already.
    """

    def __init__(
        self,
        config: DynamicConfig,
        metadata: MetadataCache,
        clock: Clock,
        send_request: RequestSender,
        own_coordinator: OwnCoordinator | None = None,
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._send_request = send_request
        self._own_coordinator = own_coordinator
        self._coordinators: dict[BrokerId, _Coordinator] = {}

    def is_needed(self, support: TransactionSupport) -> bool:
        """False where ``transaction.partition.verification.enable`` is off and nothing has to be
        added.
        """
        return support.bumps_epoch or self.is_required

    @property
    def is_required(self) -> bool:
        """False where a batch that was not verified is appended all the same."""
        return self._config.current.transaction_partition_verification_enable

    @property
    def retry_backoff_ms(self) -> int:
        """The pause before a partition is added again while the transaction before is ended."""
        return self._config.current.add_partitions_to_txn_retry_backoff_ms

    @property
    def retry_for_ms(self) -> int:
        """How long that is done."""
        config = self._config.current
        return min(config.add_partitions_to_txn_retry_backoff_max_ms, config.request_timeout_ms)

    def is_verified(self, producer: TransactionalProducer, topic_partition: TopicPartition) -> bool:
        """True where the coordinator is on this broker and says at once that the partition belongs
        to the producer's transaction; where it does not, :meth:`verify` asks.
        """
        return self._own_coordinator is not None and self._own_coordinator(
            producer.transactional_id,
            ProducerIdAndEpoch(producer.producer_id, producer.producer_epoch),
            topic_partition,
        )

    def verify(
        self, producer: TransactionalProducer, topic_partition: TopicPartition
    ) -> Deferred[None]:
        """Ask the coordinator; filled once the partition belongs to the producer's transaction.

        Fails with a KafkaError: INVALID_TXN_STATE, TRANSACTION_ABORTABLE, INVALID_PRODUCER_EPOCH,
        INVALID_PRODUCER_ID_MAPPING and whatever else the coordinator answers; NETWORK_EXCEPTION,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS and
        CONCURRENT_TRANSACTIONS, which may be tried again.
        """
        outcome: Deferred[None] = Deferred()
        broker_id = self._coordinator_of(producer.transactional_id)
        if broker_id is None:
            outcome.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return outcome
        coordinator = self._coordinators.setdefault(broker_id, _Coordinator())
        question = coordinator.waiting.get(producer.transactional_id)
        if question is not None and question.producer != producer:
            if question.producer.producer_epoch > producer.producer_epoch:
                outcome.fail(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
                return outcome
            is_fenced = question.producer.producer_epoch < producer.producer_epoch
            del coordinator.waiting[producer.transactional_id]
            question.fail(
                ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            )
            question = None
        if question is None:
            question = coordinator.waiting[producer.transactional_id] = _Question(producer)
        question.partitions.setdefault(topic_partition, []).append(outcome)
        if not coordinator.is_asked:
            coordinator.is_asked = True
            # At the end of this pass of the loop: the partitions of one request go together.
            self._clock.call_soon(partial(self._ask, broker_id, coordinator))
        return outcome

    def _coordinator_of(self, transactional_id: str) -> BrokerId | None:
        image = self._metadata.topic(TRANSACTION_STATE_TOPIC)
        if image is None:
            return None
        leader = image.partitions[group_partition(transactional_id, len(image.partitions))].leader
        return leader if leader in self._metadata.brokers else None

    def _ask(self, broker_id: BrokerId, coordinator: _Coordinator) -> None:
        questions, coordinator.waiting = coordinator.waiting, {}
        if not questions:
            del self._coordinators[broker_id]
            return
        request = AddPartitionsToTxnRequest(
            transactions=[_transaction(question) for question in questions.values()]
        )
        timeout_ms = self._config.current.request_timeout_ms
        answered = self._send_request(broker_id, request, timeout_ms)

        def settle(outcome: Deferred[Response]) -> None:
            try:
                _settle(questions, outcome)
            finally:
                self._ask(broker_id, coordinator)

        answered.on_done(settle)


def _transaction(question: _Question) -> AddPartitionsToTxnTransaction:
    producer = question.producer
    topics: dict[str, list[int]] = {}
    for topic_partition in question.partitions:
        topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not producer.support.bumps_epoch,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _settle(questions: dict[str, _Question], outcome: Deferred[Response]) -> None:
    """Answer everybody who has waited for one request."""
    try:
        response = outcome.result()
    except Exception as error:
        if not isinstance(error, KafkaError):
            _log.error("a verification failed", exc_info=error)
        # The channel's errors say what became of the request; asking again does no harm.
        for each in questions.values():
            each.fail(ErrorCode.NETWORK_EXCEPTION)
        return
    assert isinstance(response, AddPartitionsToTxnResponse)
    code = ErrorCode.of(response.error_code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        code = ErrorCode.INVALID_TXN_STATE  # of no meaning to the client
    if code is ErrorCode.NONE:
        for result in response.results_by_transaction:
            question = questions.get(result.transactional_id)
            if question is not None:
                _settle_partitions(question, result.topic_results)
        code = ErrorCode.UNKNOWN_SERVER_ERROR  # of partitions without an answer
    for question in questions.values():
        question.fail(code)


def _settle_partitions(
    question: _Question, topics: Iterable[AddPartitionsToTxnTopicResult]
) -> None:
    for topic in topics:
        for each in topic.results_by_partition:
            question.settle(
                TopicPartition(topic.name, each.partition_index),
                _for_client(each.partition_error_code, question.producer.support),
            )


def _for_client(number: int, support: TransactionSupport) -> ErrorCode:
    """Return what a producer expects for what the coordinator has answered."""
    code = ErrorCode.of(number)
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and support is TransactionSupport.DEFAULT_ERROR:
        return ErrorCode.INVALID_TXN_STATE
    return code
