"""Requests of ours on a raw socket: any version, no retries, answers as they come.

A ``Wire`` is one connection. ``send`` and ``receive`` are apart so that a test can pipeline; the
other functions are one question each, for tests that care about what the broker holds and not
about how it is asked.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.batch import Batch, iter_batches
from millstream.records.record import Record, read_records

R = TypeVar("R", bound=Response)

PRODUCE_VERSION = 9
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 9
CREATE_TOPICS_VERSION = 7
ANSWER_TIMEOUT_S = 60.0


class HungUpError(Exception):
    """The broker closed the connection."""


class Wire:
    """One connection; use it as a context, or ``close`` it."""

    def __init__(self, host: str, port: int, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._asked: dict[int, tuple[int, int]] = {}
        self._next_id = 1

    def frame(self, request: Request, version: int) -> tuple[int, bytes]:
        """Return a correlation id and the frame to send under it."""
        correlation_id = self._next_id
        self._next_id += 1
        self._asked[correlation_id] = (request.API_KEY, version)
        outgoing = encode_request(request, version, correlation_id, "wire")
        return correlation_id, b"".join(outgoing.pieces)  # type: ignore[arg-type]

    def send(self, request: Request, version: int) -> int:
        """Send a request; return its correlation id."""
        correlation_id, data = self.frame(request, version)
        self.send_bytes(data)
        return correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Send frames as they are."""
        self._socket.sendall(data)

    def receive(self) -> tuple[int, Response]:
        """Return the next answer, whichever request it belongs to."""
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        key, version = self._asked.pop(int.from_bytes(frame[:4], "big"))
        return decode_response(key, version, frame)

    def call(self, request: Request, version: int, answer: type[R]) -> R:
        """Send a request and return its answer; nothing else may be outstanding."""
        correlation_id = self.send(request, version)
        received, response = self.receive()
        assert received == correlation_id
        assert isinstance(response, answer)
        return response

    def has_answer(self) -> bool:
        """True when an answer has begun to arrive."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        position = 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if count == 0:
                raise HungUpError
            position += count
        return data

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def create_topic(
    wire: Wire, name: str, partitions: int, configs: Mapping[str, str] | None = None
) -> bytes:
    """Create a topic; return its id."""
    (result,) = create_topics(wire, [name], partitions, configs)
    return result


def create_topics(
    wire: Wire, names: Sequence[str], partitions: int, configs: Mapping[str, str] | None = None
) -> list[bytes]:
    """Create topics of one shape with one request; return their ids."""
    texts = [CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()]
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=texts,
            )
            for name in names
        ]
    )
    response = wire.call(request, CREATE_TOPICS_VERSION, CreateTopicsResponse)
    for topic in response.topics:
        assert topic.error_code == 0, (topic.name, topic.error_code, topic.error_message)
    return [bytes(topic.topic_id) for topic in response.topics]


def produce_request(
    topic: str, batches: Mapping[int, bytes], *, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    """Return a request with one batch for each partition named."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )


def produce(wire: Wire, topic: str, partition: int, batch: bytes) -> PartitionProduceResponse:
    """Produce one batch with acks=all."""
    request = produce_request(topic, {partition: batch})
    response = wire.call(request, PRODUCE_VERSION, ProduceResponse)
    return response.responses[0].partition_responses[0]


def fetch_request(
    topic: str,
    offsets: Mapping[int, int],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
) -> FetchRequest:
    """Return a fetch outside of any session."""
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=index, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                    for index, offset in offsets.items()
                ],
            )
        ],
    )


def fetch(wire: Wire, topic: str, partition: int, offset: int) -> PartitionData:
    """Fetch what there is now."""
    request = fetch_request(topic, {partition: offset})
    response = wire.call(request, FETCH_VERSION, FetchResponse)
    return response.responses[0].partitions[0]


def read_batches(wire: Wire, topic: str, partition: int, offset: int = 0) -> Iterator[Batch]:
    """Yield every whole batch from ``offset`` to the high watermark; each must be sound."""
    while True:
        data = fetch(wire, topic, partition, offset)
        assert data.error_code == 0, (topic, partition, offset, data.error_code)
        if offset >= data.high_watermark:
            assert not data.records
            return
        begun = offset
        for batch in iter_batches(memoryview(bytes(data.records))):  # type: ignore[arg-type]
            batch.ensure_valid()
            yield batch
            offset = batch.next_offset
        assert offset > begun, f"no whole batch at {offset} of {topic}-{partition}"


def read_all(wire: Wire, topic: str, partition: int, offset: int = 0) -> list[Record]:
    """Return every record from the batch that holds ``offset`` to the high watermark."""
    batches = read_batches(wire, topic, partition, offset)
    return [record for batch in batches for record in read_records(batch)]


def offset_for(
    wire: Wire, topic: str, partition: int, timestamp: int
) -> ListOffsetsPartitionResponse:
    """Ask for the first offset at or after a time, or for one of the special ones (-1, -2, -3)."""
    (answer,) = offsets_for(wire, topic, partition, [timestamp])
    return answer


def offsets_for(
    wire: Wire, topic: str, partition: int, timestamps: Sequence[int]
) -> list[ListOffsetsPartitionResponse]:
    """Ask for many times of one partition, one request each, all of them on their way at once."""
    for timestamp in timestamps:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
        )
        wire.send(request, LIST_OFFSETS_VERSION)
    answers = []
    for _ in timestamps:
        _, response = wire.receive()
        assert isinstance(response, ListOffsetsResponse)
        answers.append(response.topics[0].partitions[0])
    return answers
