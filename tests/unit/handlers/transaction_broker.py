"""A broker with its coordinators of groups and transactions: everything but the sockets is real.

Markers go through the broker's own WriteTxnMarkers to its logs.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path

from tests.unit.handlers.admin_broker import AdminBroker

from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.result import Instant, Result
from millstream.coordinator.transaction.coordinator import TransactionCoordinator
from millstream.coordinator.transaction.records import transaction_record
from millstream.model.topic import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from millstream.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from millstream.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorEntry,
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
from millstream.runtime.coordinators.marker_writes import write_markers
from millstream.runtime.coordinators.transaction_coordinator_runtime import (
    TransactionCoordinatorRuntime,
)

ID = "payments"


class TransactionBroker(AdminBroker):
    """The coordinator of ``payments``, and the leader of everything."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(
            directory, {"transaction.state.log.num.partitions": "3"} | (settings or {})
        )
        self._ids = itertools.count()
        groups: CoordinatorEntry[GroupCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.GROUP, GROUP_METADATA_TOPIC, group_partition, self._new_groups
        )
        transactions: CoordinatorEntry[TransactionCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.TRANSACTION,
            TRANSACTION_STATE_TOPIC,
            group_partition,
            self._new_transactions,
        )
        self.services.group_runtime = groups.get
        self.services.transaction_runtime = transactions.get
        self.services.coordinators = CoordinatorRegistry([groups, transactions], self.partitions)
        self.services.coordinators.begin()

    def close(self) -> None:
        self.services.coordinators.stop()
        super().close()

    def _new_groups(self) -> GroupCoordinatorRuntime:
        return GroupCoordinatorRuntime(
            self.config.current,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            new_id=lambda: str(next(self._ids)),
            send_request=self.requests.send,
        )

    def _new_transactions(self) -> TransactionCoordinatorRuntime:
        return TransactionCoordinatorRuntime(
            self.config.current,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            new_producer_id=self.services.producer_ids.next,
            send_request=self.requests.send,
            write_markers=partial(
                write_markers,
                self.clock,
                self.partitions,
                self.services.group_runtime,
            ),
        )

    # Requests

    def find(self, key: str = ID) -> FindCoordinatorResponse:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[key])
        return self.call(request, 4, FindCoordinatorResponse)

    def init(
        self,
        version: int = 5,
        *,
        transactional_id: str = ID,
        timeout_ms: int = 60_000,
        named: tuple[int, int] = (-1, -1),
    ) -> tuple[int, int, int]:
        """Return error code, producer id and epoch."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=named[0],
            producer_epoch=named[1],
        )
        answer = self.call(request, version, InitProducerIdResponse)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def jump(self, epoch: int) -> None:
        """Give the producer an epoch, as if it had ended that many transactions."""
        transactions = self.services.transaction_runtime()

        def operation(shard: TransactionCoordinator, now: Instant) -> Result[None]:
            transaction = shard.transactions.get(ID)
            assert transaction is not None
            jumped = transaction.with_epoch(
                epoch, timeout_ms=transaction.timeout_ms, now_ms=now.wall_ms
            )
            return Result(records=[transaction_record(ID, jumped, 2)])

        transactions._runtime.write(transactions.partition_for(ID), operation)
        self.clock.settle()

    def add(
        self, version: int, producer: tuple[int, int], topics: dict[str, list[int]]
    ) -> dict[tuple[str, int], int]:
        """Return the error code of each partition, of a request of a client."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=ID,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics_of(topics),
        )
        answer = self.call(request, version, AddPartitionsToTxnResponse)
        return codes_of(answer.results_by_topic_v3_and_below)

    def add_all(
        self, transactions: list[AddPartitionsToTxnTransaction], version: int = 5
    ) -> AddPartitionsToTxnResponse:
        """Send a request of a broker."""
        request = AddPartitionsToTxnRequest(transactions=transactions)
        return self.call(request, version, AddPartitionsToTxnResponse)

    def add_offsets(self, version: int, producer: tuple[int, int], group_id: str = "g") -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=group_id,
        )
        return self.call(request, version, AddOffsetsToTxnResponse).error_code

    def end(
        self, version: int, producer: tuple[int, int], *, commit: bool = True
    ) -> tuple[int, int, int]:
        """Return error code, producer id and epoch."""
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        answer = self.call(request, version, EndTxnResponse)
        self.clock.settle()
        return answer.error_code, answer.producer_id, answer.producer_epoch

    def list_all(self, version: int = 2, **filters: object) -> ListTransactionsResponse:
        fields = {"state_filters": [], "producer_id_filters": []} | filters
        request = ListTransactionsRequest(**fields)
        return self.call(request, version, ListTransactionsResponse)

    def described(self, transactional_id: str = ID) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = self.call(request, 0, DescribeTransactionsResponse)
        (state,) = answer.transaction_states
        return state


def transaction(
    producer: tuple[int, int],
    topics: dict[str, list[int]],
    transactional_id: str = ID,
    *,
    verify_only: bool = False,
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=topics_of(topics),
    )


def topics_of(topics: dict[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [
        AddPartitionsToTxnTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]


def codes_of(topics: list[AddPartitionsToTxnTopicResult]) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }
