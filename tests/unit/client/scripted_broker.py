"""A broker for tests of the client: a real socket, and answers that the test decides.

It knows one topic and keeps batches in memory. ``refuse`` takes functions that are asked before a
request is answered: they may return another answer, or raise to cut the connection.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from millstream.model.errors import ProtocolError
from millstream.model.topic import TopicId
from millstream.protocol.api import APIS
from millstream.protocol.codec import decode_request, decode_request_header, encode_response
from millstream.protocol.framing import FrameReader
from millstream.protocol.headers import RequestHeader
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from millstream.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from millstream.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from millstream.records.batch import header_at

TOPIC: Final = "t"
TOPIC_ID: Final = TopicId(b"0123456789abcdef")
PRODUCER_ID: Final = 77
OUT_OF_ORDER: Final = 45

Interceptor = Callable[[Request], Response | None]


class CutConnectionError(Exception):
    """Raised by an interceptor: the connection is closed without an answer."""


class ScriptedBroker:
    """Serves topic ``t`` with one partition from a thread, until closed; over TLS if told so."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.intercept: list[Interceptor] = []
        self.batches: list[bytes] = []
        self.requests: list[Request] = []
        self.versions: dict[int, tuple[int, int]] = {
            key: (api.first_version, api.last_version) for key, api in APIS.items()
        }
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closing = False
        self._start(self._accept)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def end_offset(self) -> int:
        return sum(header_at(batch).count for batch in self.batches)

    def close(self) -> None:
        # shutdown wakes the threads that wait; close alone would leave them, and would take the
        # descriptor from under a thread that is about to speak TLS over it.
        self._is_closing = True
        for each in [self._listener, *self._connections]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for each in [self._listener, *self._connections]:
            each.close()

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader(1 << 28)
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()
                return
            self._connections.append(connection)  # the one that close knows has no descriptor now
        if self._is_closing:
            connection.close()
            return
        with connection:
            try:
                while count := connection.recv_into(reader.writable()):
                    reader.received(count)
                    while (frame := reader.next_frame()) is not None:
                        self._answer(connection, frame)
            except (OSError, CutConnectionError):
                pass
            except ProtocolError:
                # shutdown of a TLS socket takes its decryption away first: what is read then is
                # a TLS record.
                if not self._is_closing:
                    raise

    def _answer(self, connection: socket.socket, frame: memoryview) -> None:
        header = decode_request_header(frame)
        request = decode_request(header, memoryview(bytes(frame)))
        self.requests.append(request)
        response = None
        for interceptor in list(self.intercept):
            response = response or interceptor(request)
        response = response or self._respond(request, header)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return
        outgoing = encode_response(header.key, header.version, header.correlation_id, response)
        connection.sendall(outgoing.join())

    def _respond(self, request: Request, header: RequestHeader) -> Response:
        match request:
            case ApiVersionsRequest():
                return self._api_versions()
            case MetadataRequest():
                return self.metadata()
            case InitProducerIdRequest():
                return InitProducerIdResponse(
                    error_code=0, producer_id=PRODUCER_ID, producer_epoch=0
                )
            case ProduceRequest():
                return self._append(request)
            case FetchRequest():
                return self._read(request)
            case ListOffsetsRequest():
                return self._offsets(request)
        raise AssertionError(f"{type(request).__name__} was not expected")

    def _api_versions(self) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            error_code=0,
            api_keys=[
                ApiVersion(api_key=key, min_version=first, max_version=last)
                for key, (first, last) in self.versions.items()
            ],
        )

    def metadata(self, *, leader: int = 1, error: int = 0) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0, partition_index=0, leader_id=leader, replica_nodes=[1], isr_nodes=[1]
        )
        topic = MetadataResponseTopic(
            error_code=error, name=TOPIC, topic_id=TOPIC_ID, partitions=[] if error else [partition]
        )
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            controller_id=1,
            topics=[topic],
        )

    def _append(self, request: ProduceRequest) -> ProduceResponse:
        records = request.topic_data[0].partition_data[0].records
        assert records is not None
        return self.append(bytes(records))

    def append(self, data: bytes) -> ProduceResponse:
        """Append a batch as a broker does that knows only the sequences it has seen."""
        batch = header_at(bytearray(data))
        offset = self.end_offset
        expected = None
        for kept in self.batches:
            known = header_at(kept)
            if batch.has_producer_id and known.base_sequence == batch.base_sequence:
                return self.produced(0, known.base_offset)
            expected = known.last_sequence + 1
        if batch.has_producer_id and expected not in (None, batch.base_sequence):
            return self.produced(OUT_OF_ORDER)
        batch.assign(base_offset=offset, leader_epoch=0)
        self.batches.append(bytes(batch.buffer))
        return self.produced(0, offset)

    def produced(self, error: int, offset: int = -1) -> ProduceResponse:
        row = PartitionProduceResponse(index=0, error_code=error, base_offset=offset)
        topic = TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=[row])
        return ProduceResponse(responses=[topic])

    def _read(self, request: FetchRequest) -> FetchResponse:
        asked = request.topics[0].partitions[0]
        kept = [each for each in self.batches if header_at(each).next_offset > asked.fetch_offset]
        error = 0 if asked.fetch_offset <= self.end_offset else 1
        data = b"".join(kept)
        return self.fetched(
            error, data[: max(asked.partition_max_bytes, len(kept[0]) if kept else 0)]
        )

    def fetched(self, error: int, data: bytes = b"") -> FetchResponse:
        row = PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=self.end_offset,
            aborted_transactions=None,
            records=data,
        )
        topic = FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[row])
        return FetchResponse(responses=[topic])

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        asked = request.topics[0].partitions[0]
        offset = self.end_offset if asked.timestamp == -1 else 0
        row = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])])


@contextmanager
def first_address_is_deaf(monkeypatch: pytest.MonkeyPatch, port: int) -> Iterator[str]:
    """Give a host name with two addresses: the first takes no connection and refuses none."""
    with ExitStack() as stack:
        deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # more than the backlog holds: the system drops what comes then
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(deaf.getsockname())
        places = (deaf.getsockname(), ("127.0.0.1", port))
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        yield "two-addresses.invalid:1"
