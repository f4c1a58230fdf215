"""Producers and transactions, from the brokers' state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.client.core.admin.outcome import Outcome, Outcomes, done, refusal
from millstream.client.core.admin.routing import Routing
from millstream.client.core.network import CoordinatorType
from millstream.client.errors import TRANSIENT, UnsupportedVersionError
from millstream.model.errors import ErrorCode
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""States by which transactions can be listed (Kafka: ``TransactionState``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """One producer in one partition; the transaction's start is −1 without one."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start_offset: Offset


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """One line of a list of transactions."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transaction and its partitions; the start is −1 when none is open."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator: str = ""
    """The address of the broker that answers for it."""


class Producers(Routing):
    """Operations on producers."""

    async def describe_producers(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, list[ActiveProducer]]:
        """Return the idempotent and transactional producers of partitions (KIP-664)."""

        async def ask(
            pending: list[TopicPartition],
        ) -> dict[TopicPartition, Outcome[list[ActiveProducer]]]:
            leaders, failed = await self.by_leader(pending)
            found = await self.apart(leaders, ask_leader)
            return found | {
                topic_partition: Outcome(None, error) for topic_partition, error in failed.items()
            }

        async def ask_leader(
            leader: int, some: list[TopicPartition]
        ) -> dict[TopicPartition, Outcome[list[ActiveProducer]]]:
            topics: dict[str, list[int]] = {}
            for topic_partition in some:
                topics.setdefault(topic_partition.topic, []).append(topic_partition.partition)
            request = DescribeProducersRequest(
                topics=[
                    TopicRequest(name=name, partition_indexes=indexes)
                    for name, indexes in topics.items()
                ]
            )
            response = await self.network.call(leader, request, DescribeProducersResponse)
            return {
                topic_partition: _producers(row, topic_partition)
                for topic in response.topics
                for row in topic.partitions
                for topic_partition in [TopicPartition(topic.name, row.partition_index)]
            }

        return await self.each(topic_partitions, ask)

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Return the transactions of all coordinators, by id.

        Filters leave some out: those in other ``states``, of other producers, open for less than
        ``min_duration_ms`` (KIP-994), or whose id does not match ``pattern``, an expression of RE2
        (KIP-1152). ValueError for a state that brokers do not know; UnsupportedVersionError for a
        filter that they do not.
        """
        found: dict[str, ListedTransaction] = {}
        unknown: set[str] = set()
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=min_duration_ms,
            transactional_id_pattern=pattern,
        )
        needed = 2 if pattern is not None else 1 if min_duration_ms >= 0 else 0

        async def ask(broker_id: int, _: list[int]) -> dict[int, Outcome[None]]:
            if needed:
                version = await self.network.version_for(broker_id, ListTransactionsRequest)
                if version < needed:
                    raise UnsupportedVersionError(
                        f"broker {broker_id} lists transactions in version {version}: "
                        f"this filter needs {needed}"
                    )
            response = await self.ask_broker(broker_id, request, ListTransactionsResponse)
            unknown.update(response.unknown_state_filters)
            for each in response.transaction_states:
                found[each.transactional_id] = ListedTransaction(
                    each.transactional_id, each.producer_id, each.transaction_state
                )
            refused = ErrorCode.of(response.error_code)
            about = "the list of transactions"
            if refused is ErrorCode.INVALID_REGULAR_EXPRESSION:
                about = f"{pattern!r} is not an expression of RE2"
            return {broker_id: done(response.error_code, None, about)}

        brokers = list((await self.metadata()).brokers)
        (await self.each_broker(brokers, ask)).get_all()
        if unknown:
            raise ValueError(
                f"there is no state {', '.join(sorted(unknown))} of a transaction: "
                f"the states are {', '.join(TRANSACTION_STATES)}"
            )
        return [found[name] for name in sorted(found)]

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> Outcomes[str, TransactionDescription]:
        """Return the state of transactions."""

        async def ask(pending: list[str]) -> dict[str, Outcome[TransactionDescription]]:
            return await self.apart({name: [name] for name in pending}, ask_coordinator)

        async def ask_coordinator(
            name: str, _: list[str]
        ) -> dict[str, Outcome[TransactionDescription]]:
            return {name: await self._transaction(name)}

        return await self.each(transactional_ids, ask)

    async def _transaction(self, name: str) -> Outcome[TransactionDescription]:
        response = await self.ask_coordinator(
            name,
            DescribeTransactionsRequest(transactional_ids=[name]),
            DescribeTransactionsResponse,
            kind=CoordinatorType.TRANSACTION,
        )
        row = response.transaction_states[0]
        error = refusal(row.error_code, None, f"transactional id {name!r}")
        if error is not None:
            if error.error in TRANSIENT:
                self.network.forget_coordinator(name, CoordinatorType.TRANSACTION)
            return Outcome(None, error)
        node_id = await self.network.coordinator(name, CoordinatorType.TRANSACTION)
        return Outcome(
            TransactionDescription(
                transactional_id=row.transactional_id,
                state=row.transaction_state,
                producer_id=row.producer_id,
                producer_epoch=row.producer_epoch,
                timeout_ms=row.transaction_timeout_ms,
                start_time_ms=row.transaction_start_time_ms,
                partitions=tuple(
                    TopicPartition(topic.topic, partition)
                    for topic in row.topics
                    for partition in topic.partitions
                ),
                coordinator=str(self.network.brokers[node_id].address),
            )
        )


def _producers(
    row: PartitionResponse, topic_partition: TopicPartition
) -> Outcome[list[ActiveProducer]]:
    producers = [
        ActiveProducer(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp_ms=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch,
            transaction_start_offset=each.current_txn_start_offset,
        )
        for each in row.active_producers
    ]
    return Outcome(producers, refusal(row.error_code, row.error_message, str(topic_partition)))
