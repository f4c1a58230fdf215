"""Ends transactions from outside: fencing producers, and hanging transactions (KIP-588, KIP-664).

A transaction *hangs* when a partition has an open one that no coordinator knows: readers of
committed records wait for it for ever. Kafka: ``TransactionsCommand``, ``AbortTransactionHandler``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from millstream.client.core.admin.outcome import Outcome, Outcomes, refusal
from millstream.client.core.admin.producers import ActiveProducer, Producers, TransactionDescription
from millstream.client.core.network import CoordinatorType
from millstream.client.core.producer.transaction_requests import LAST_END_TXN_OF_V1
from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.client.core.waiting import backoff_ms, sleep
from millstream.client.errors import TRANSIENT, BrokerError
from millstream.model.errors import ErrorCode
from millstream.model.offsets import NO_OFFSET
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

R = TypeVar("R", bound=Response)

DEFAULT_MAX_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The brokers' ``transaction.max.timeout.ms``: no transaction is open for longer than that."""

_FENCING_TIMEOUT_MS: Final = 1
"""The transaction timeout of a producer that only fences (Kafka: ``FenceProducersHandler``)."""


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The id and epoch that a transactional id has now."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """One open transaction in one partition."""

    topic_partition: TopicPartition
    producer: ActiveProducer


class Transactions(Producers):
    """Operations that end transactions."""

    async def fence_producers(
        self, transactional_ids: Iterable[str]
    ) -> Outcomes[str, ProducerIdAndEpoch]:
        """Fence the producers with these ids, and abort what they have open."""

        async def ask(pending: list[str]) -> dict[str, Outcome[ProducerIdAndEpoch]]:
            return await self.apart({name: [name] for name in pending}, self._fence)

        return await self.each(transactional_ids, ask)

    async def _fence(self, name: str, _: list[str]) -> dict[str, Outcome[ProducerIdAndEpoch]]:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=_FENCING_TIMEOUT_MS
        )
        answers: list[InitProducerIdResponse] = []
        error = await self._until_not_busy(
            name,
            request,
            InitProducerIdResponse,
            lambda response: response.error_code,
            found=answers,
        )
        if error is not None:
            return {name: Outcome(None, error)}
        (response,) = answers
        found = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return {name: Outcome(found)}

    async def end_transactions(
        self, transactions: Iterable[PreparedTransaction], *, committed: bool
    ) -> Outcomes[PreparedTransaction, None]:
        """Commit or abort transactions that their producers have prepared.

        Repeating it does no harm. BrokerError PRODUCER_FENCED or INVALID_PRODUCER_EPOCH for one
        that was ended otherwise: by its timeout, or because a later producer has the id.
        """

        async def ask(
            pending: list[PreparedTransaction],
        ) -> dict[PreparedTransaction, Outcome[None]]:
            return await self.apart({each: [each] for each in pending}, end)

        async def end(
            each: PreparedTransaction, _: list[PreparedTransaction]
        ) -> dict[PreparedTransaction, Outcome[None]]:
            request = EndTxnRequest(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                committed=committed,
            )
            error = await self._until_not_busy(
                each.transactional_id,
                request,
                EndTxnResponse,
                lambda response: response.error_code,
                max_version=None if each.is_v2 else LAST_END_TXN_OF_V1,
            )
            return {each: Outcome(None, error)}

        return await self.each(transactions, ask)

    async def _until_not_busy(
        self,
        name: str,
        request: Request,
        answer: type[R],
        code: Callable[[R], int],
        *,
        max_version: int | None = None,
        found: list[R] | None = None,
    ) -> BrokerError | None:
        """Ask a coordinator until it is not busy with the end of a transaction; its refusal.

        The answer is put into ``found``.
        """
        deadline = self.loop.now_ms() + self.settings.default_api_timeout_ms
        attempts = 0
        while True:
            response = await self.ask_coordinator(
                name, request, answer, kind=CoordinatorType.TRANSACTION, max_version=max_version
            )
            error = refusal(code(response), None, f"transactional id {name!r}")
            pause_ms = backoff_ms(
                self.loop,
                attempts,
                self.settings.retry_backoff_ms,
                self.settings.retry_backoff_max_ms,
            )
            is_busy = error is not None and error.error is ErrorCode.CONCURRENT_TRANSACTIONS
            if not is_busy or self.loop.now_ms() + pause_ms >= deadline:
                break
            attempts += 1
            await sleep(self.loop, pause_ms)
        if error is not None and error.error in TRANSIENT:
            self.network.forget_coordinator(name, CoordinatorType.TRANSACTION)
        if found is not None:
            found.append(response)
        return error

    async def abort_transaction(
        self,
        topic_partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = 0,
    ) -> None:
        """End a hanging transaction in one partition, by an abort marker sent to its leader.

        The numbers are those of :meth:`describe_producers`. A transaction that a coordinator knows
        must not be ended so: fence its producer instead. BrokerError INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if the partition has seen later ones.
        """

        async def ask(pending: list[TopicPartition]) -> dict[TopicPartition, Outcome[None]]:
            leaders, failed = await self.by_leader(pending)
            found = await self.apart(leaders, ask_leader)
            return found | {each: Outcome(None, error) for each, error in failed.items()}

        async def ask_leader(
            leader: int, some: list[TopicPartition]
        ) -> dict[TopicPartition, Outcome[None]]:
            topics = [
                WritableTxnMarkerTopic(name=each.topic, partition_indexes=[each.partition])
                for each in some
            ]
            marker = WritableTxnMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=topics,
                coordinator_epoch=max(coordinator_epoch, 0),
            )
            response = await self.network.call(
                leader, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse
            )
            return {
                TopicPartition(topic.name, row.partition_index): Outcome(
                    None,
                    refusal(row.error_code, None, f"{topic.name}-{row.partition_index}"),
                )
                for answered in response.markers
                for topic in answered.topics
                for row in topic.partitions
            }

        (await self.each([topic_partition], ask))[topic_partition].get()

    async def find_open_transaction(
        self, topic_partition: TopicPartition, start_offset: int
    ) -> OpenTransaction:
        """Return the transaction that began at an offset of a partition.

        BrokerError TRANSACTIONAL_ID_NOT_FOUND if none is open that did.
        """
        described = await self.describe_producers([topic_partition])
        for producer in described[topic_partition].get():
            if producer.transaction_start_offset == start_offset >= 0:
                return OpenTransaction(topic_partition, producer)
        raise BrokerError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            f"no open transaction of {topic_partition} begins at offset {start_offset}",
        )

    async def find_hanging_transactions(
        self,
        topic_partitions: Iterable[TopicPartition],
        *,
        max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS,
    ) -> list[OpenTransaction]:
        """Return the open transactions of partitions that no coordinator knows, by partition.

        Considered are those whose producer has written nothing for longer than
        ``max_transaction_timeout_ms``: younger ones may be on their way to the coordinator.
        Errors of single partitions are raised.
        """
        now_ms = self.loop.wall_clock_ms()
        described = await self.describe_producers(topic_partitions)
        candidates = [
            OpenTransaction(topic_partition, producer)
            for topic_partition, producers in described.get_all().items()
            for producer in producers
            if producer.transaction_start_offset != NO_OFFSET
            and now_ms - producer.last_timestamp_ms > max_transaction_timeout_ms
        ]
        if not candidates:
            return []
        is_known = await self._known_transactions(
            {each.producer.producer_id for each in candidates}
        )
        return sorted(
            (each for each in candidates if not is_known(each)),
            key=lambda each: (each.topic_partition, each.producer.producer_id),
        )

    async def _known_transactions(
        self, producer_ids: Iterable[int]
    ) -> Callable[[OpenTransaction], bool]:
        """Return a test whether a coordinator knows that a transaction holds a partition."""
        listed = await self.list_transactions(producer_ids=sorted(producer_ids))
        names = {each.producer_id: each.transactional_id for each in listed}
        described = await self.describe_transactions(names.values())
        descriptions: dict[str, TransactionDescription] = {}
        for name, outcome in described.items():
            if outcome.error is None:
                descriptions[name] = outcome.get()
            elif outcome.error.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                # Not known to be gone: to call it hanging could end a living transaction.
                raise outcome.error

        def is_known(each: OpenTransaction) -> bool:
            name = names.get(each.producer.producer_id)
            found = None if name is None else descriptions.get(name)
            return found is not None and each.topic_partition in found.partitions

        return is_known
