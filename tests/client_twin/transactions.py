"""A twin cluster with a transaction coordinator of both generations.

Partitions remember which batches belong to which transaction, so a test reads what a reader of
committed records would see, and what nobody may ever see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.client_twin.cluster import TwinBroker, _api_versions, _init_producer_id, _produce
from tests.client_twin.loop import TwinLoop
from tests.client_twin.readers import ReaderCluster

from millstream.model.errors import ErrorCode
from millstream.model.topic import ZERO_TOPIC_ID, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from millstream.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from millstream.records.batch import Batch, iter_batches
from millstream.records.record import read_records

FIRST_ADDING_PRODUCE = 12
FIRST_BUMPING_END = 5


@dataclass
class Transaction:
    """The state of one transactional id."""

    producer_id: int
    epoch: int
    is_open: bool = False
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    last_result: bool | None = None


class TransactionalCluster(ReaderCluster):
    """Transactions over the twin's topics; ``level`` is that of ``transaction.version``."""

    def __init__(self, loop: TwinLoop, broker_ids: Sequence[int] = (1,), level: int = 2) -> None:
        super().__init__(loop, broker_ids)
        self.level = level
        self.transactions: dict[str, Transaction] = {}
        self.verdicts: dict[tuple[TopicPartition, int], bool] = {}
        """Whether a batch, by partition and base offset, was committed."""
        self.committed_offsets: dict[tuple[str, TopicPartition], int] = {}
        self.transaction_coordinator_id = broker_ids[0]
        self.generations: dict[str, tuple[int, str]] = {}
        """The generation and member that TxnOffsetCommit has to name, by group."""
        self.handlers |= {
            ApiVersionsRequest: self._versions,
            InitProducerIdRequest: self._init_producer,
            AddPartitionsToTxnRequest: self._add_partitions,
            AddOffsetsToTxnRequest: self._add_offsets,
            TxnOffsetCommitRequest: self._commit_offsets,
            EndTxnRequest: self._end,
            ProduceRequest: self._produce_in_transaction,
        }

    # --- what tests see --------------------------------------------------------------------------

    def committed(self, name: str, partition: int = 0) -> list[bytes | None]:
        """The values that a reader of committed records sees."""
        topic_partition = TopicPartition(name, partition)
        return [
            record.value
            for data in self.topics[name].partitions[partition].batches
            for batch in iter_batches(data)
            if self.verdicts.get((topic_partition, batch.base_offset))
            for record in read_records(batch)
        ]

    def asked(self, kind: type[Request]) -> list[Request]:
        return [
            each
            for broker in self.brokers.values()
            for each in broker.requests
            if isinstance(each, kind)
        ]

    # --- the coordinator -------------------------------------------------------------------------

    def _versions(self, broker: TwinBroker, request: Request) -> Response:
        response = _api_versions(broker, request)
        assert isinstance(response, ApiVersionsResponse)
        response.finalized_features = [
            FinalizedFeatureKey(
                name="transaction.version",
                max_version_level=self.level,
                min_version_level=self.level,
            )
        ]
        response.finalized_features_epoch = self.level
        return response

    def _find_coordinator(self, broker: TwinBroker, request: Request) -> Response:
        if getattr(request, "key_type", 0) != 1:
            return super()._find_coordinator(broker, request)
        groups, self.coordinator_id = self.coordinator_id, self.transaction_coordinator_id
        try:
            return super()._find_coordinator(broker, request)
        finally:
            self.coordinator_id = groups

    def _refusal(self, broker: TwinBroker, name: str, producer_id: int, epoch: int) -> ErrorCode:
        if broker.node_id != self.transaction_coordinator_id:
            return ErrorCode.NOT_COORDINATOR
        known = self.transactions.get(name)
        if known is None or known.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if known.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.NONE

    def _init_producer(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, InitProducerIdRequest)
        name = request.transactional_id
        if name is None:
            return _init_producer_id(broker, request)
        if broker.node_id != self.transaction_coordinator_id:
            return InitProducerIdResponse(
                error_code=ErrorCode.NOT_COORDINATOR.code, producer_epoch=-1
            )
        known = self.transactions.get(name)
        if known is None:
            self.next_producer_id += 1
            known = self.transactions[name] = Transaction(self.next_producer_id, -1)
        elif request.producer_id >= 0 and request.producer_epoch != known.epoch:
            return InitProducerIdResponse(
                error_code=ErrorCode.PRODUCER_FENCED.code, producer_epoch=-1
            )
        if known.is_open:
            known.epoch += 1
            self._complete(known, committed=False)
        known.epoch += 1
        return InitProducerIdResponse(
            error_code=0, producer_id=known.producer_id, producer_epoch=known.epoch
        )

    def _add_partitions(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, AddPartitionsToTxnRequest)
        name = request.v3_and_below_transactional_id
        error = self._refusal(
            broker, name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        if error is ErrorCode.NONE:
            known = self.transactions[name]
            known.is_open = True
            known.partitions |= {
                TopicPartition(topic.name, each)
                for topic in request.v3_and_below_topics
                for each in topic.partitions
            }
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=each, partition_error_code=error.code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _add_offsets(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, AddOffsetsToTxnRequest)
        name = request.transactional_id
        error = self._refusal(broker, name, request.producer_id, request.producer_epoch)
        if error is ErrorCode.NONE:
            self.transactions[name].is_open = True
            self.transactions[name].groups.add(request.group_id)
        return AddOffsetsToTxnResponse(error_code=error.code)

    def _commit_offsets(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, TxnOffsetCommitRequest)
        assert broker.last_header is not None
        adds = broker.last_header.version >= FIRST_BUMPING_END
        known = self.transactions[request.transactional_id]
        error = ErrorCode.NONE
        member = self.generations.get(request.group_id)
        if broker.node_id != self.coordinator_id:
            error = ErrorCode.NOT_COORDINATOR
        elif known.epoch != request.producer_epoch:
            error = ErrorCode.INVALID_PRODUCER_EPOCH
        elif member is not None and member != (request.generation_id, request.member_id):
            error = ErrorCode.ILLEGAL_GENERATION
        elif adds:
            known.is_open = True
            known.groups.add(request.group_id)
        elif request.group_id not in known.groups:
            error = ErrorCode.INVALID_TXN_STATE
        if error is ErrorCode.NONE:
            for topic in request.topics:
                for row in topic.partitions:
                    place = TopicPartition(topic.name, row.partition_index)
                    known.offsets[request.group_id, place] = row.committed_offset
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=error.code
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _end(self, broker: TwinBroker, request: Request) -> Response:
        assert isinstance(request, EndTxnRequest)
        assert broker.last_header is not None
        bumps = broker.last_header.version >= FIRST_BUMPING_END
        name = request.transactional_id
        known = self.transactions.get(name)
        again = known is not None and bumps and request.producer_epoch == known.epoch - 1
        if known is not None and again and known.last_result == request.committed:
            return self._ended(known, bumps=True)
        error = self._refusal(broker, name, request.producer_id, request.producer_epoch)
        if error is ErrorCode.NONE and known is not None and not known.is_open:
            if known.last_result == request.committed and not bumps:
                return self._ended(known, bumps=False)
            if not bumps or request.committed:
                error = ErrorCode.INVALID_TXN_STATE
        if error is not ErrorCode.NONE or known is None:
            return EndTxnResponse(error_code=error.code)
        self._complete(known, committed=request.committed)
        if bumps:
            known.epoch += 1
        return self._ended(known, bumps=bumps)

    def _ended(self, known: Transaction, *, bumps: bool) -> Response:
        return EndTxnResponse(
            error_code=0,
            producer_id=known.producer_id if bumps else -1,
            producer_epoch=known.epoch if bumps else -1,
        )

    def _complete(self, known: Transaction, *, committed: bool) -> None:
        """What the markers do: decide on every batch of the transaction."""
        for place in known.partitions:
            for data in self.topics[place.topic].partitions[place.partition].batches:
                batch = Batch(memoryview(data))
                if batch.producer_id == known.producer_id:
                    self.verdicts.setdefault((place, batch.base_offset), committed)
        if committed:
            self.committed_offsets |= known.offsets
        known.is_open = False
        known.partitions.clear()
        known.groups.clear()
        known.offsets.clear()
        known.last_result = committed

    # --- leaders ---------------------------------------------------------------------------------

    def _produce_in_transaction(self, broker: TwinBroker, request: Request) -> Response | None:
        """Refuse batches of partitions that are not in the transaction, as verification does."""
        assert isinstance(request, ProduceRequest)
        assert broker.last_header is not None
        if request.transactional_id is None:
            return _produce(broker, request)
        known = self.transactions[request.transactional_id]
        refused: dict[TopicPartition, ErrorCode] = {}
        for topic in request.topic_data:
            by_id = topic.topic_id != ZERO_TOPIC_ID
            found = self.by_id(topic.topic_id) if by_id else self.topics.get(topic.name)
            if found is None:
                continue
            for row in topic.partition_data:
                assert row.records is not None
                batch = Batch(memoryview(row.records))
                assert batch.is_transactional
                place = TopicPartition(found.name, row.index)
                if batch.producer_epoch != known.epoch:
                    refused[place] = ErrorCode.INVALID_PRODUCER_EPOCH
                elif broker.last_header.version >= FIRST_ADDING_PRODUCE:
                    known.is_open = True
                    known.partitions.add(place)
                elif place not in known.partitions:
                    refused[place] = ErrorCode.INVALID_TXN_STATE
        if not refused:
            return _produce(broker, request)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=row.index,
                            error_code=next(iter(refused.values())).code,
                            base_offset=-1,
                        )
                        for row in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )
