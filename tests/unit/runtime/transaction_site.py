"""A broker whose transaction coordinator is a test that answers by hand."""

from __future__ import annotations

from pathlib import Path

from tests.unit.handlers.admin_broker import AdminBroker

from millstream.coordinator.transaction.init_producer_id import ProducerIdAndEpoch
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TRANSACTION_STATE_TOPIC, TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.replicas.partition import READ_COMMITTED, Partition

TOPIC = "t"
ID = 7
NAME = "payments"
VERSION_2 = 12
"""The first version of Produce that adds its partitions."""


class HandCoordinator:
    """Keeps the requests to brokers until a test answers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[BrokerId, AddPartitionsToTxnRequest, Deferred[Response]]] = []
        self.known: set[tuple[str, ProducerIdAndEpoch, TopicPartition]] = set()
        """What it says at once, as one that is on the same broker."""

    def knows(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        return (transactional_id, producer, partition) in self.known

    def learn(self, *indexes: int, epoch: int = 0) -> None:
        """Say at once that partitions are in the transaction of ``payments``."""
        producer = ProducerIdAndEpoch(ID, epoch)
        self.known |= {(NAME, producer, TopicPartition(TOPIC, index)) for index in indexes}

    def send(self, broker_id: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        assert isinstance(request, AddPartitionsToTxnRequest)
        answer: Deferred[Response] = Deferred()
        self.asked.append((broker_id, request, answer))
        return answer

    def answer(
        self,
        error: ErrorCode = ErrorCode.NONE,
        *,
        of: dict[TopicPartition, ErrorCode] | None = None,
    ) -> AddPartitionsToTxnRequest:
        """Answer the oldest request with one error for all partitions but those named."""
        _, request, answer = self.asked.pop(0)
        errors = of or {}
        answer.complete(
            AddPartitionsToTxnResponse(
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=transaction.transactional_id,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name=topic.name,
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=index,
                                        partition_error_code=errors.get(
                                            TopicPartition(topic.name, index), error
                                        ).code,
                                    )
                                    for index in topic.partitions
                                ],
                            )
                            for topic in transaction.topics
                        ],
                    )
                    for transaction in request.transactions
                ]
            )
        )
        return request

    def fail(self, error: ErrorCode) -> None:
        """Let the oldest request end with an error of the channel."""
        _, _, answer = self.asked.pop(0)
        answer.fail(KafkaError(error))


class TransactionSite(AdminBroker):
    """One broker with a topic of three partitions; transactional producers write to it."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.coordinator = HandCoordinator()
        super().__init__(
            directory,
            settings,
            ask_coordinator=self.coordinator.send,
            own_coordinator=self.coordinator.knows,
        )
        self.create(TRANSACTION_STATE_TOPIC, 1)
        self.create(TOPIC, 3)

    def partition(self, index: int = 0) -> Partition:
        return self.partitions.get(TOPIC, index)

    def produce(
        self,
        *values: bytes,
        version: int = 11,
        sequence: int = 0,
        epoch: int = 0,
        producer_id: int = ID,
        name: str | None = NAME,
        indexes: tuple[int, ...] = (0,),
        transactional: bool = True,
    ) -> Written:
        """Send a Produce request with one batch for each partition."""
        builder = BatchBuilder(
            BatchOptions(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=transactional,
            )
        )
        for value in values or (b"v",):
            builder.append(self.clock.now_ms(), None, value)
        records = memoryview(bytearray(builder.build()))
        image = self.metadata.topic(TOPIC)
        assert image is not None
        answer = self.start(
            ProduceRequest(
                transactional_id=name,
                acks=-1,
                timeout_ms=1000,
                topic_data=[
                    TopicProduceData(
                        name=TOPIC,
                        topic_id=image.topic_id,
                        partition_data=[
                            PartitionProduceData(index=index, records=records) for index in indexes
                        ],
                    )
                ],
            ),
            version,
        )
        return Written(self, answer)

    def end(
        self,
        *,
        commit: bool,
        epoch: int = 0,
        producer_id: int = ID,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        indexes: tuple[int, ...] = (0,),
        topic: str = TOPIC,
    ) -> ErrorCode:
        """Write a marker; return how the last partition has answered."""
        response = self.call(
            WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        transaction_result=commit,
                        coordinator_epoch=coordinator_epoch,
                        transaction_version=transaction_version,
                        topics=[
                            WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))
                        ],
                    )
                ]
            ),
            2,
            WriteTxnMarkersResponse,
        )
        return ErrorCode.of(response.markers[0].topics[0].partitions[-1].error_code)

    def committed(self, index: int = 0) -> list[bytes]:
        """Return the values that a committed reader sees, batch by batch."""
        from tests.unit.storage.support import read_committed

        partition = self.partition(index)
        assert partition.visible_end(READ_COMMITTED) <= partition.high_watermark
        return read_committed(partition.log)


class Written:
    """A Produce request that may be answered yet."""

    def __init__(self, site: TransactionSite, answer: Deferred[Response]) -> None:
        self._site = site
        self._answer = answer

    @property
    def waits(self) -> bool:
        self._site.clock.settle()
        return not self._answer.done

    @property
    def partitions(self) -> list[PartitionProduceResponse]:
        self._site.clock.settle()
        response = self._answer.result()
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses

    @property
    def error(self) -> ErrorCode:
        return ErrorCode.of(self.partitions[0].error_code)
