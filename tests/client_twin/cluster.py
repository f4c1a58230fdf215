"""Brokers whose answers a test decides; without being told, they answer as brokers do."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.client_twin.loop import Connection, TwinLoop

from millstream.client.core.frames import FrameAssembler
from millstream.client.settings import Address
from millstream.model.errors import ErrorCode
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_request, decode_request_header, encode_response
from millstream.protocol.headers import RequestHeader
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from millstream.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.records.batch import Batch, iter_batches
from millstream.records.record import Record, read_records

Handler = Callable[["TwinBroker", Request], Response | None]
Hook = Callable[["TwinBroker", Request], Response | None]

REMEMBERED_BATCHES = 5


@dataclass
class TwinPartition:
    """One partition: its leader, and its log as batches in order."""

    leader: int
    epoch: int = 0
    batches: list[bytes] = field(default_factory=list)
    end_offset: int = 0
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)
    """Producer id to its epoch and its last batches: first and last sequence, base offset."""

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        """Append one batch as a leader does; the error, and the base offset."""
        (batch,) = iter_batches(bytearray(data))
        if not batch.is_valid:
            return ErrorCode.CORRUPT_MESSAGE, -1
        if batch.has_producer_id:
            error, offset = self._check_sequence(batch)
            if error is not ErrorCode.NONE or offset >= 0:
                return error, offset
        offset = self.end_offset
        batch.assign(base_offset=offset, leader_epoch=self.epoch)
        self.batches.append(bytes(batch.buffer))
        self.end_offset = batch.next_offset
        if batch.has_producer_id:
            _, kept = self.producers.setdefault(
                batch.producer_id, (batch.producer_epoch, deque(maxlen=REMEMBERED_BATCHES))
            )
            if self.producers[batch.producer_id][0] != batch.producer_epoch:
                kept = deque(maxlen=REMEMBERED_BATCHES)
            kept.append((batch.base_sequence, batch.last_sequence, offset))
            self.producers[batch.producer_id] = (batch.producer_epoch, kept)
        return ErrorCode.NONE, offset

    def _check_sequence(self, batch: Batch) -> tuple[ErrorCode, int]:
        """NONE and −1 to append, NONE and an offset for a duplicate, or the refusal."""
        known = self.producers.get(batch.producer_id)
        if known is None:
            return ErrorCode.NONE, -1
        epoch, kept = known
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > epoch:
            fresh = batch.base_sequence == 0
            return (ErrorCode.NONE if fresh else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        for first, last, offset in kept:
            if (first, last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, offset
        expected = (kept[-1][1] + 1) & 0x7FFFFFFF if kept else batch.base_sequence
        if batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    def records(self) -> list[Record]:
        """All records in order of their offsets."""
        return [
            record
            for data in self.batches
            for batch in iter_batches(data)
            for record in read_records(batch)
        ]


@dataclass
class TwinTopic:
    name: str
    topic_id: TopicId
    partitions: list[TwinPartition]
    error: ErrorCode = ErrorCode.NONE


class TwinBroker:
    """One broker: its address, the versions it tells, whether it is up."""

    def __init__(self, cluster: TwinCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.address = Address(f"broker-{node_id}", 9092)
        self.is_up = True
        self.requests: list[Request] = []
        self.last_header: RequestHeader | None = None
        self.versions = {key: (api.first_version, api.last_version) for key, api in APIS.items()}

    def accepts(self) -> bool:
        return self.is_up

    def opened(self, connection: Connection) -> None:
        connection.state["frames"] = FrameAssembler()

    def stop(self) -> None:
        """Go down: connections break, new ones are refused."""
        self.is_up = False
        for connection in list(self.cluster.loop.network.connections):
            if connection.address == self.address and connection.is_open:
                connection.cut(ConnectionResetError(104, "connection reset"))

    def start(self) -> None:
        self.is_up = True

    def received(self, connection: Connection, data: bytes) -> None:
        for frame in connection.state["frames"].take(data):
            header = decode_request_header(frame)
            request = decode_request(header, frame)
            self.last_header = header
            self.requests.append(request)
            self.cluster.serve(self, connection, header, request)


class TwinCluster:
    """Brokers that share topics. ``hooks`` are asked before a request is handled, in order, and
    may answer; ``handlers`` by request class replace or add what brokers do.
    """

    def __init__(self, loop: TwinLoop, broker_ids: Sequence[int] = (1,)) -> None:
        self.loop = loop
        self.controller_id = broker_ids[0]
        self.brokers = {node_id: TwinBroker(self, node_id) for node_id in broker_ids}
        for broker in self.brokers.values():
            loop.network.peers[broker.address] = broker
        self.topics: dict[str, TwinTopic] = {}
        self.auto_create_partitions = 0
        self.hooks: list[Hook] = []
        self.handlers: dict[type[Request], Handler] = {
            ApiVersionsRequest: _api_versions,
            MetadataRequest: _metadata,
            InitProducerIdRequest: _init_producer_id,
            ProduceRequest: _produce,
            FindCoordinatorRequest: _find_coordinator,
        }
        self.before: Callable[[TwinBroker, Connection, Request], bool] = lambda *_: True
        """Asked when a request arrives; False drops it (the caller may have cut the connection)."""
        self.after: Callable[[TwinBroker, Connection, Request], float | None] = lambda *_: 0.0
        """Asked once it was handled: how long the answer takes (ms); None never sends it."""
        self.next_producer_id = 1000
        self.created = 0

    @property
    def bootstrap(self) -> str:
        return ",".join(str(broker.address) for broker in self.brokers.values())

    def create_topic(self, name: str, partitions: int = 1) -> TwinTopic:
        """Create a topic, or create it anew: with another id and empty."""
        self.created += 1
        ids = list(self.brokers)
        digest = hashlib.md5(f"{name}/{self.created}".encode()).digest()
        topic = TwinTopic(
            name,
            TopicId(digest),
            [TwinPartition(leader=ids[index % len(ids)]) for index in range(partitions)],
        )
        self.topics[name] = topic
        return topic

    def delete_topic(self, name: str) -> None:
        del self.topics[name]

    def move_leader(self, name: str, partition: int, leader: int) -> None:
        row = self.topics[name].partitions[partition]
        row.leader = leader
        row.epoch += 1

    def by_id(self, topic_id: TopicId) -> TwinTopic | None:
        for topic in self.topics.values():
            if topic.topic_id == topic_id:
                return topic
        return None

    def serve(
        self, broker: TwinBroker, connection: Connection, header: RequestHeader, request: Request
    ) -> None:
        if not self.before(broker, connection, request):
            return
        response: Response | None = None
        for hook in list(self.hooks):
            response = response or hook(broker, request)
        if response is None:
            response = self.handlers[type(request)](broker, request)
        if response is None:
            return
        delay_ms = self.after(broker, connection, request)
        if delay_ms is not None:
            self.reply(connection, header, response, delay_ms)

    def reply(
        self, connection: Connection, header: RequestHeader, response: Response, delay_ms: float = 0
    ) -> None:
        """Send an answer; for handlers that returned None because they answer later."""
        first, last = 0, APIS[header.key].last_version
        version = header.version if first <= header.version <= last else 0
        outgoing = encode_response(header.key, version, header.correlation_id, response)
        connection.answer(outgoing.join(), delay_ms)


def _api_versions(broker: TwinBroker, request: Request) -> Response:
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, (first, last) in broker.versions.items()
        ],
    )


def _metadata(broker: TwinBroker, request: Request) -> Response:
    assert isinstance(request, MetadataRequest)
    cluster = broker.cluster
    rows = []
    if request.topics is None:
        names = list(cluster.topics)
    else:
        names = [each.name or "" for each in request.topics]
    for name in names:
        topic = cluster.topics.get(name)
        if topic is None and cluster.auto_create_partitions and request.allow_auto_topic_creation:
            topic = cluster.create_topic(name, cluster.auto_create_partitions)
        rows.append(_metadata_row(name, topic))
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.node_id, host=each.address.host, port=each.address.port
            )
            for each in cluster.brokers.values()
            if each.is_up
        ],
        cluster_id="twin",
        controller_id=cluster.controller_id,
        topics=rows,
    )


def _metadata_row(name: str, topic: TwinTopic | None) -> MetadataResponseTopic:
    if topic is None or topic.error is not ErrorCode.NONE:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
        return MetadataResponseTopic(
            error_code=error.code, name=name, topic_id=ZERO_TOPIC_ID, partitions=[]
        )
    return MetadataResponseTopic(
        error_code=0,
        name=name,
        topic_id=topic.topic_id,
        partitions=[
            MetadataResponsePartition(
                error_code=0 if row.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE.code,
                partition_index=index,
                leader_id=row.leader,
                leader_epoch=row.epoch,
                replica_nodes=[row.leader],
                isr_nodes=[row.leader],
            )
            for index, row in enumerate(topic.partitions)
        ],
    )


def _init_producer_id(broker: TwinBroker, request: Request) -> Response:
    broker.cluster.next_producer_id += 1
    return InitProducerIdResponse(
        error_code=0, producer_id=broker.cluster.next_producer_id, producer_epoch=0
    )


def _find_coordinator(broker: TwinBroker, request: Request) -> Response:
    assert isinstance(request, FindCoordinatorRequest)
    chosen = broker.cluster.brokers[broker.cluster.controller_id]
    host, port = chosen.address.host, chosen.address.port
    if not request.coordinator_keys:
        return FindCoordinatorResponse(error_code=0, node_id=chosen.node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=chosen.node_id,
                host=host,
                port=port,
                error_code=0,
                error_message=None,
            )
            for key in request.coordinator_keys
        ],
    )


def _produce(broker: TwinBroker, request: Request) -> Response | None:
    assert isinstance(request, ProduceRequest)
    cluster = broker.cluster
    responses = []
    endpoints: dict[int, NodeEndpoint] = {}
    for asked in request.topic_data:
        by_id = asked.topic_id != ZERO_TOPIC_ID
        topic = cluster.by_id(asked.topic_id) if by_id else cluster.topics.get(asked.name)
        rows = [
            _produce_row(broker, topic, each, endpoints, by_id) for each in asked.partition_data
        ]
        responses.append(
            TopicProduceResponse(name=asked.name, topic_id=asked.topic_id, partition_responses=rows)
        )
    if request.acks == 0:
        return None
    return ProduceResponse(responses=responses, node_endpoints=list(endpoints.values()))


def _produce_row(
    broker: TwinBroker,
    topic: TwinTopic | None,
    asked: PartitionProduceData,
    endpoints: dict[int, NodeEndpoint],
    by_id: bool,
) -> PartitionProduceResponse:
    if topic is None or asked.index >= len(topic.partitions):
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return PartitionProduceResponse(index=asked.index, error_code=unknown.code, base_offset=-1)
    partition = topic.partitions[asked.index]
    if partition.leader != broker.node_id:
        hint = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.epoch)
        leader = broker.cluster.brokers.get(partition.leader)
        if leader is not None:
            endpoints[leader.node_id] = NodeEndpoint(
                node_id=leader.node_id, host=leader.address.host, port=leader.address.port
            )
        return PartitionProduceResponse(
            index=asked.index,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER.code,
            base_offset=-1,
            current_leader=hint,
        )
    assert asked.records is not None
    error, offset = partition.append(bytes(asked.records))
    return PartitionProduceResponse(index=asked.index, error_code=error.code, base_offset=offset)
