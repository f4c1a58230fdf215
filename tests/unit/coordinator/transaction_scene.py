"""A transaction coordinator with a hand clock, a list for a log and a cluster of dictionaries,
driven as the runtime drives it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from millstream.coordinator.result import (
    Instant,
    LocalMarkers,
    MarkerCodes,
    OutboundRequest,
    Result,
)
from millstream.coordinator.transaction.coordinator import TransactionCoordinator
from millstream.coordinator.transaction.init_producer_id import NeedsProducerId, ProducerIdAndEpoch
from millstream.coordinator.transaction.metadata import Partitions, TransactionMetadata
from millstream.coordinator.transaction.settings import TransactionSettings
from millstream.coordinator.transaction.states import TransactionState
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Response
from millstream.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

R = TypeVar("R")

ID = "payments"
WALL_START_MS = 1_700_000_000_000
EPOCH = 7
"""The coordinator epoch."""


class Cluster:
    """Who leads what; a partition that is not here does not exist."""

    def __init__(self, broker_id: BrokerId | None) -> None:
        self.broker_id = broker_id
        self.transaction_version = 2
        self.leaders: dict[tuple[str, int], int] = {}

    def leaders_of(self, topic: str, indexes: Collection[int]) -> dict[BrokerId | None, set[int]]:
        found: dict[BrokerId | None, set[int]] = {}
        for index in indexes:
            leader = self.leaders.get((topic, index))
            found.setdefault(None if leader is None else BrokerId(leader), set()).add(index)
        return found


class Leaders:
    """Brokers that write markers: ``written`` is what they have, newest last."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, int, int, bool]] = []
        """Partition, producer id, epoch, and whether it is a commit."""
        self.errors: dict[tuple[str, int], ErrorCode] = {}

    def answer(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index,
                                    error_code=self._write(
                                        TopicPartition(topic.name, index),
                                        marker.producer_id,
                                        marker.producer_epoch,
                                        marker.transaction_result,
                                    ),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def write(self, markers: LocalMarkers) -> list[MarkerCodes]:
        """Write what needs no request."""
        return [
            {
                topic: {
                    index: self._write(
                        TopicPartition(topic, index),
                        end.producer.producer_id,
                        end.producer.producer_epoch,
                        end.committed,
                    )
                    for index in sorted(indexes)
                }
                for topic, indexes in topics.items()
            }
            for end, topics in markers.ends
        ]

    def _write(
        self, partition: TopicPartition, producer_id: int, epoch: int, is_commit: bool
    ) -> int:
        error = self.errors.get((partition.topic, partition.partition), ErrorCode.NONE)
        if error is ErrorCode.NONE:
            self.written.append((partition, producer_id, epoch, is_commit))
        return error.code


class Scene:
    """One shard; its default transactional id is ``payments``. ``log`` is what was written. The
    markers for partitions of ``broker_id`` need no request.
    """

    def __init__(
        self, settings: TransactionSettings | None = None, *, broker_id: BrokerId | None = None
    ) -> None:
        self.settings = settings or TransactionSettings()
        self.cluster = Cluster(broker_id)
        self.leaders = Leaders()
        self.sent: list[OutboundRequest | LocalMarkers] = []
        """Requests that are on their way, and markers that are being written."""
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 0
        self.next_producer_id = 100
        self.holds_markers = False
        """Requests stay on their way until :meth:`deliver`."""
        self.coordinator = self.new_coordinator()
        self.topic("t", 4)

    # What the runtime does

    @property
    def now(self) -> Instant:
        return Instant(WALL_START_MS + self.now_ms, float(self.now_ms))

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(self.settings, self.cluster, coordinator_epoch=EPOCH)

    def replayed(self) -> TransactionCoordinator:
        """Return a coordinator that was rebuilt from the log."""
        coordinator = self.new_coordinator()
        for offset, (key, value) in enumerate(self.log):
            record = coordinator.decode(key, value)
            assert record is not None
            coordinator.replay(record, record_offset=offset)
        return coordinator

    def move(self) -> None:
        """Have another broker load the log; requests on their way are answered to nobody."""
        self.sent.clear()
        self.coordinator = self.replayed()
        self.carry_out(self.coordinator.on_loaded(self.now))

    def carry_out(self, result: Result[R]) -> Result[R]:
        """Write, apply, answer, send, go on."""
        for record in result.records:
            key, value = record.encode()
            stored = self.coordinator.decode(key, value)
            assert stored is not None
            assert (stored.key, stored.value) == (record.key, record.value)
            self.coordinator.replay(record, record_offset=len(self.log))
            self.log.append((key, value))
        for answer in result.answers:
            answer.send()
        self.sent += result.outbound
        for continuation in result.when_committed:
            self.carry_out(continuation(self.now))
        if not self.holds_markers:
            self.deliver()
        return result

    def deliver(self, answer: Callable[[WriteTxnMarkersRequest], Response] | None = None) -> None:
        """Have the leaders answer every request, and those that follow from it."""
        while self.sent:
            request = self.sent.pop(0)
            if isinstance(request, LocalMarkers):
                self.carry_out(request.event(self.leaders.write(request), self.now))
                continue
            assert isinstance(request.request, WriteTxnMarkersRequest)
            body = request.request.encode_body(2)
            arrived = WriteTxnMarkersRequest.decode_body(2, body)
            response = (answer or self.leaders.answer)(arrived)
            self.carry_out(request.event(response, self.now))

    def fail_sent(self, error: ErrorCode) -> None:
        """Let what is on its way fail."""
        sent, self.sent = self.sent, []
        for request in sent:
            assert isinstance(request, OutboundRequest)
            self.carry_out(request.event(KafkaError(error), self.now))

    def advance(self, milliseconds: int) -> None:
        """Let time pass, stopping at every deadline."""
        end_ms = self.now_ms + milliseconds
        while True:
            next_ms = self.coordinator.next_deadline_ms
            if next_ms is None or next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, int(next_ms))
            self.carry_out(self.coordinator.expire(self.now))
        self.now_ms = end_ms

    # The cluster

    def topic(self, name: str, partitions: int, leaders: tuple[int, ...] = (1,)) -> None:
        for index in range(partitions):
            self.cluster.leaders[name, index] = leaders[index % len(leaders)]

    # Requests

    def init(
        self,
        transactional_id: str = ID,
        *,
        timeout_ms: int = 60_000,
        named: ProducerIdAndEpoch | None = None,
    ) -> ProducerIdAndEpoch:
        def attempt(new_id: int | None) -> ProducerIdAndEpoch | NeedsProducerId:
            reply: Deferred[ProducerIdAndEpoch | NeedsProducerId] = Deferred()
            result = self.coordinator.init_producer_id(
                transactional_id, timeout_ms, named, new_id, reply, self.now
            )
            self.carry_out(result)
            return reply.result() if result.response is None else result.response

        return self._with_producer_id(attempt)

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Mapping[str, set[int]] | None = None,
        transactional_id: str = ID,
        *,
        client_version: int = 2,
    ) -> None:
        result = self.coordinator.add_partitions(
            transactional_id,
            producer,
            frozen(partitions or {"t": {0}}),
            client_version=client_version,
            now=self.now,
        )
        assert self.carry_out(result).response is ErrorCode.NONE

    def verify(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Mapping[str, set[int]],
        transactional_id: str = ID,
    ) -> dict[str, dict[int, ErrorCode]]:
        result = self.coordinator.verify_partitions(transactional_id, producer, frozen(partitions))
        assert not result.records
        assert result.response is not None
        return result.response

    def end(
        self,
        producer: ProducerIdAndEpoch,
        transactional_id: str = ID,
        *,
        commit: bool = True,
        version: int = 2,
    ) -> ProducerIdAndEpoch:
        def attempt(new_id: int | None) -> ProducerIdAndEpoch | NeedsProducerId:
            result = self.coordinator.end_transaction_of(
                transactional_id,
                producer,
                commit=commit,
                bumps_epoch=version >= 2,
                new_producer_id=new_id,
                now=self.now,
            )
            self.carry_out(result)
            assert result.response is not None
            return result.response

        return self._with_producer_id(attempt)

    def abort_timed_out(self, *, ids_are_there: bool = True) -> None:
        exhausted = self.carry_out(self.coordinator.abort_timed_out(self.now)).response
        assert exhausted is not None
        for transactional_id in exhausted if ids_are_there else ():
            self.next_producer_id += 1
            result = self.coordinator.abort_exhausted(
                transactional_id, self.next_producer_id, self.now
            )
            self.carry_out(result)

    # What is so

    def of(self, transactional_id: str = ID) -> TransactionMetadata:
        transaction = self.coordinator.transactions.get(transactional_id)
        assert transaction is not None
        return transaction

    @property
    def state(self) -> TransactionState:
        return self.of().state

    def _with_producer_id(
        self, attempt: Callable[[int | None], ProducerIdAndEpoch | NeedsProducerId]
    ) -> ProducerIdAndEpoch:
        written = len(self.log)
        outcome = attempt(None)
        if isinstance(outcome, NeedsProducerId):
            assert len(self.log) == written, "an operation that needs an id has done nothing"
            self.next_producer_id += 1
            outcome = attempt(self.next_producer_id)
        assert isinstance(outcome, ProducerIdAndEpoch)
        return outcome


def frozen(partitions: Mapping[str, set[int]]) -> Partitions:
    return {topic: frozenset(indexes) for topic, indexes in partitions.items()}


def error_of(operation: Callable[[], object]) -> ErrorCode:
    """Return the error that an operation raises; NONE where it succeeds."""
    try:
        operation()
    except KafkaError as error:
        return error.error
    return ErrorCode.NONE
