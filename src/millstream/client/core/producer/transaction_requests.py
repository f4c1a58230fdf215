"""What a transactional producer asks of its coordinators, each retried until it is answered.

================== ==================== ======================================================
request            coordinator          versions
================== ==================== ======================================================
InitProducerId     transactional id     all; from 3 with the epoch to be raised (KIP-360)
AddPartitionsToTxn transactional id     up to 3; later ones are for brokers (KIP-890)
AddOffsetsToTxn    transactional id     all; in version 1 of transactions only
TxnOffsetCommit    group                up to 4 in version 1, from 5 it adds the group itself
EndTxn             transactional id     up to 4 in version 1, from 5 it raises the epoch
================== ==================== ======================================================

Answers with a temporary error are retried with a back-off; after NOT_COORDINATOR and a broken
connection the coordinator is looked up again. Any other error is raised as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from millstream.client.core.consumer.record import GroupMetadata, OffsetAndMetadata
from millstream.client.core.network import CoordinatorType, Network
from millstream.client.core.producer.transaction_errors import Severity, severity_of
from millstream.client.core.producer.transactions import TransactionManager
from millstream.client.core.settings import ProducerSettings
from millstream.client.core.waiting import backoff_ms, sleep
from millstream.client.errors import BrokerError, ClientError
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

R = TypeVar("R", bound=Response)

_LAST_ADD_PARTITIONS_OF_CLIENTS: Final = 3
LAST_END_TXN_OF_V1: Final = 4
"""From 5 on, EndTxn raises the epoch (KIP-890)."""
_LAST_OFFSET_COMMIT_OF_V1: Final = 4
_BUSY_BACKOFF_MS: Final = 20.0
"""Between attempts while the transaction before is being ended (Kafka:
``ADD_PARTITIONS_RETRY_BACKOFF_MS``)."""


class TransactionRequests:
    """The requests of one producer."""

    def __init__(
        self, network: Network, settings: ProducerSettings, manager: TransactionManager
    ) -> None:
        self._network = network
        self._settings = settings
        self._manager = manager

    async def init_producer_id(self, producer_id: int, epoch: int) -> InitProducerIdResponse:
        """Get an epoch that fences earlier producers; −1 and −1 for the first time."""
        request = InitProducerIdRequest(
            transactional_id=self._manager.transactional_id,
            transaction_timeout_ms=self._settings.transaction_timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        answer = await self._ask(
            request, InitProducerIdResponse, lambda found: self._epoch_error(found.error_code)
        )
        assert answer is not None
        return answer

    def _epoch_error(self, code: int) -> BrokerError | None:
        if ErrorCode.of(code) is ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            asked = self._settings.transaction_timeout_ms
            return _error(
                code,
                f"transaction.timeout.ms = {asked} is not between 1 and the brokers' "
                "transaction.max.timeout.ms",
            )
        return _error(code)

    async def add_partitions(self, topic_partitions: Sequence[TopicPartition]) -> bool:
        """Add partitions to the transaction; False if it is not going on any more."""
        manager = self._manager
        topics: dict[str, list[int]] = {}
        for each in topic_partitions:
            topics.setdefault(each.topic, []).append(each.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=manager.transactional_id,
            v3_and_below_producer_id=manager.producer_id,
            v3_and_below_producer_epoch=manager.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        answer = await self._ask(
            request,
            AddPartitionsToTxnResponse,
            _partition_error,
            max_version=_LAST_ADD_PARTITIONS_OF_CLIENTS,
            is_wanted=lambda: manager.is_going_on,
            begins=True,
        )
        return answer is not None

    async def add_offsets(self, group_id: str) -> bool:
        """Add a group to the transaction; False if it is not going on any more."""
        manager = self._manager
        request = AddOffsetsToTxnRequest(
            transactional_id=manager.transactional_id,
            producer_id=manager.producer_id,
            producer_epoch=manager.epoch,
            group_id=group_id,
        )
        answer = await self._ask(
            request,
            AddOffsetsToTxnResponse,
            lambda found: _error(found.error_code),
            is_wanted=lambda: manager.is_going_on,
            begins=True,
        )
        return answer is not None

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> bool:
        """Commit offsets as part of the transaction; False if it is not going on any more."""
        manager = self._manager
        pending = dict(offsets)

        def read(answer: TxnOffsetCommitResponse) -> BrokerError | None:
            errors: list[BrokerError] = []
            for topic in answer.topics:
                for row in topic.partitions:
                    topic_partition = TopicPartition(topic.name, row.partition_index)
                    error = _error(row.error_code, f"the offset of {topic_partition}")
                    if error is None:
                        pending.pop(topic_partition, None)
                    else:
                        errors.append(error)
            # Only what is refused for good ends the attempts.
            return max(errors, key=lambda error: severity_of(error).value, default=None)

        answer = await self._ask(
            lambda: _offset_request(manager, pending, group),
            TxnOffsetCommitResponse,
            read,
            key=group.group_id,
            kind=CoordinatorType.GROUP,
            max_version=None if manager.is_v2 else _LAST_OFFSET_COMMIT_OF_V1,
            is_wanted=lambda: manager.is_going_on,
        )
        return answer is not None

    async def end(self, *, committed: bool) -> EndTxnResponse:
        """Commit or abort the transaction."""
        manager = self._manager
        request = EndTxnRequest(
            transactional_id=manager.transactional_id,
            producer_id=manager.producer_id,
            producer_epoch=manager.epoch,
            committed=committed,
        )
        answer = await self._ask(
            request,
            EndTxnResponse,
            lambda found: _error(found.error_code),
            max_version=None if manager.is_v2 else LAST_END_TXN_OF_V1,
        )
        assert answer is not None
        return answer

    async def _ask(
        self,
        request: Request | Callable[[], Request],
        answer: type[R],
        read: Callable[[R], BrokerError | None],
        *,
        key: str | None = None,
        kind: CoordinatorType = CoordinatorType.TRANSACTION,
        max_version: int | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        begins: bool = False,
    ) -> R | None:
        """Ask until there is an answer without an error; None once it is not wanted any more.

        A request that ``begins`` the transaction at the coordinator, and may have reached it, is
        wanted until that is known: what the coordinator has begun has to be ended there.
        """
        manager = self._manager
        name = manager.transactional_id if key is None else key
        attempts = 0
        may_have_begun = False
        while is_wanted() or (may_have_begun and not manager.is_started):
            try:
                response = await self._network.send_to_coordinator(
                    name,
                    kind,
                    request if isinstance(request, Request) else request(),
                    max_version=max_version,
                )
                assert isinstance(response, answer), "an answer has the type of its request"
                refused = read(response)
                if refused is None:
                    return response
                failure: ClientError | KafkaError = refused
            except (ClientError, KafkaError) as error:
                failure = error
            severity = severity_of(failure)
            if severity is Severity.REFRESH_RETRIABLE:
                may_have_begun = begins
                self._network.forget_coordinator(name, kind)
            elif severity is not Severity.RETRIABLE:
                raise failure
            await sleep(self._network.loop, self._pause_ms(failure, attempts))
            attempts += 1
        return None

    def _pause_ms(self, failure: ClientError | KafkaError, attempts: int) -> float:
        settings = self._settings
        first_ms = settings.retry_backoff_ms
        if isinstance(failure, KafkaError) and failure.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            first_ms = min(first_ms, _BUSY_BACKOFF_MS)
        return backoff_ms(
            self._network.loop, attempts, first_ms, max(first_ms, settings.retry_backoff_max_ms)
        )


def _offset_request(
    manager: TransactionManager,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group: GroupMetadata,
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for topic_partition, each in offsets.items():
        topics.setdefault(topic_partition.topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=topic_partition.partition,
                committed_offset=each.offset,
                committed_leader_epoch=each.leader_epoch,
                committed_metadata=each.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=manager.transactional_id,
        group_id=group.group_id,
        producer_id=manager.producer_id,
        producer_epoch=manager.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()
        ],
    )


def _partition_error(answer: AddPartitionsToTxnResponse) -> BrokerError | None:
    """Return the error that decides: one that is final before one that is temporary."""
    errors = [
        error
        for topic in answer.results_by_topic_v3_and_below
        for row in topic.results_by_partition
        for error in [
            _error(row.partition_error_code, f"{topic.name}-{row.partition_index} is not added")
        ]
        if error is not None
    ]
    # Partitions without an error of their own were not attempted because of the others'.
    causes = [each for each in errors if each.error is not ErrorCode.OPERATION_NOT_ATTEMPTED]
    return max(causes or errors, key=lambda error: severity_of(error).value, default=None)


def _error(code: int, about: str = "the coordinator refused") -> BrokerError | None:
    return None if code == 0 else BrokerError(ErrorCode.of(code), about)
