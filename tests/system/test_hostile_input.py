"""Frames that no client sends: the broker hangs up, keeps its memory, and serves the others."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.broker_process import BrokerProcess

from millstream.protocol.codec import encode_request
from millstream.protocol.messages.api_versions import ApiVersionsRequest
from millstream.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from millstream.records.builder import BatchBuilder

pytestmark = pytest.mark.system

READ_TIMEOUT_MS = 2_000
MEMORY_SLACK = 30 * 1024 * 1024


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of its own, with a short deadline for half a frame."""
    settings = {"socket.request.read.timeout.ms": str(READ_TIMEOUT_MS)}
    with BrokerProcess(tmp_path_factory.mktemp("hostile"), settings) as process:
        yield process


class Bystander:
    """A well-behaved client on a connection of its own."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._socket = connect(broker)

    def ask(self) -> None:
        self._socket.sendall(request_bytes(ApiVersionsRequest(), 0))
        answer = read_answer(self._socket)
        assert struct.unpack_from(">ih", answer) == (7, 0)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    client = Bystander(broker)
    yield client
    client.ask()
    client.close()


@pytest.fixture(autouse=True)
def memory_does_not_grow(broker: BrokerProcess) -> Iterator[None]:
    process = psutil.Process(broker.process.pid)
    before = process.memory_info().rss
    yield
    assert process.memory_info().rss - before < MEMORY_SLACK


def connect(broker: BrokerProcess) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), timeout=10)


def request_bytes(request: object, version: int) -> bytes:
    return b"".join(encode_request(request, version, 7, "hostile").pieces)  # type: ignore[arg-type]


def read_answer(sock: socket.socket) -> bytes:
    size = struct.unpack(">i", read_exactly(sock, 4))[0]
    return read_exactly(sock, size)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("hung up")
        data += piece
    return data


def is_closed_after(broker: BrokerProcess, data: bytes) -> bool:
    """Send and tell whether the broker hangs up without a word."""
    with connect(broker) as sock:
        sock.sendall(data)
        try:
            return sock.recv(1 << 16) == b""
        except ConnectionResetError:
            return True


@pytest.mark.parametrize(
    "size", [0, -1, -(2**31), 2**31 - 1, 100 * 1024 * 1024 + 1], ids=lambda size: f"size={size}"
)
def test_an_impossible_frame_size_hangs_up(
    broker: BrokerProcess, bystander: Bystander, size: int
) -> None:
    assert is_closed_after(broker, struct.pack(">i", size) + b"x" * 64)


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-1, 0), (4, 0), (0, 2), (0, 99), (3, -1), (29, 1)]
)
def test_an_api_or_version_that_is_not_served_hangs_up(
    broker: BrokerProcess, bystander: Bystander, key: int, version: int
) -> None:
    body = struct.pack(">hhih", key, version, 1, -1) + bytes(64)
    assert is_closed_after(broker, struct.pack(">i", len(body)) + body)


def test_an_array_of_two_billion_elements_hangs_up(
    broker: BrokerProcess, bystander: Bystander
) -> None:
    body = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 2**31 - 1) + bytes(64)
    assert is_closed_after(broker, struct.pack(">i", len(body)) + body)


def test_a_compact_array_of_two_billion_elements_hangs_up(
    broker: BrokerProcess, bystander: Bystander
) -> None:
    body = struct.pack(">hhih", 3, 9, 1, -1) + b"\0" + b"\xff\xff\xff\xff\x0f" + bytes(64)
    assert is_closed_after(broker, struct.pack(">i", len(body)) + body)


def test_half_a_frame_and_silence_hangs_up_at_the_deadline(
    broker: BrokerProcess, bystander: Bystander
) -> None:
    with connect(broker) as sock:
        sock.settimeout(READ_TIMEOUT_MS / 1000 + 10)
        sock.sendall(struct.pack(">i", 50_000_000) + b"x" * 1000)
        assert sock.recv(1) == b""


def test_a_frame_that_drips_hangs_up_too(broker: BrokerProcess, bystander: Bystander) -> None:
    with connect(broker) as sock:
        sock.settimeout(0.2)
        sock.sendall(struct.pack(">i", 50_000_000))
        for _ in range(100):
            try:
                sock.sendall(b"x")
                if sock.recv(1) == b"":
                    return
            except TimeoutError:
                bystander.ask()
            except ConnectionError:
                return
    pytest.fail("a byte now and then kept the connection open")


def test_many_declared_giants_cost_nothing(broker: BrokerProcess, bystander: Bystander) -> None:
    socks = [connect(broker) for _ in range(100)]
    for sock in socks:
        sock.sendall(struct.pack(">i", 100 * 1024 * 1024) + b"x" * 100)
    bystander.ask()
    rss = psutil.Process(broker.process.pid).memory_info().rss
    for sock in socks:
        sock.close()
    assert rss < 200 * 1024 * 1024


def templates() -> list[bytes]:
    """Well-formed requests to be damaged."""
    batch = BatchBuilder()
    batch.append(1, b"key", b"value")
    produce = ProduceRequest(
        acks=1,
        timeout_ms=100,
        topic_data=[
            TopicProduceData(
                name="nowhere",
                partition_data=[PartitionProduceData(index=0, records=batch.build())],
            )
        ],
    )
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(
                topic="nowhere",
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)],
            )
        ],
    )
    metadata = MetadataRequest(
        topics=[MetadataRequestTopic(name="nowhere")], allow_auto_topic_creation=False
    )
    return [
        request_bytes(produce, 3),
        request_bytes(produce, 9),
        request_bytes(fetch, 4),
        request_bytes(fetch, 12),
        request_bytes(metadata, 4),
        request_bytes(metadata, 12),
        request_bytes(ApiVersionsRequest(), 3),
    ]


def test_mutated_frames_are_answered_or_hung_up_on(
    broker: BrokerProcess, bystander: Bystander
) -> None:
    """Bytes changed, cut and doubled at random: whatever comes, the broker goes on."""
    chance = random.Random(20_150_517)
    originals = templates()
    for round_number in range(400):
        data = bytearray(chance.choice(originals))
        for _ in range(chance.randint(1, 8)):
            place = chance.randrange(4, len(data))
            match chance.randrange(3):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place : place + chance.randint(1, 20)]
                case _:
                    data[place:place] = chance.randbytes(chance.randint(1, 20))
            if len(data) < 16:
                break
        struct.pack_into(">i", data, 0, len(data) - 4)
        with connect(broker) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            try:
                while sock.recv(1 << 16):
                    pass
            except ConnectionResetError:
                pass
        if round_number % 50 == 0:
            bystander.ask()


def test_noise_is_hung_up_on(broker: BrokerProcess, bystander: Bystander) -> None:
    chance = random.Random(7)
    for _ in range(50):
        with connect(broker) as sock:
            try:
                sock.sendall(chance.randbytes(chance.randint(1, 100_000)))
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            except (ConnectionError, OSError):
                pass


def test_a_batch_that_claims_what_it_is_not_is_refused_and_the_connection_lives(
    broker: BrokerProcess, bystander: Bystander, tmp_path: Path
) -> None:
    batch = BatchBuilder()
    batch.append(1, b"key", b"value")
    damaged = bytearray(batch.build())
    damaged[-1] ^= 1
    request = ProduceRequest(
        acks=1,
        timeout_ms=100,
        topic_data=[
            TopicProduceData(
                name="claims",
                partition_data=[PartitionProduceData(index=0, records=bytes(damaged))],
            )
        ],
    )
    with connect(broker) as sock:
        sock.sendall(
            request_bytes(MetadataRequest(topics=[MetadataRequestTopic(name="claims")]), 4)
        )
        read_answer(sock)
        for _ in range(2):
            sock.sendall(request_bytes(request, 3))
            answer = read_answer(sock)
            # correlation id, one topic, its name, one partition, its index, the error
            (error,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len("claims") + 4 + 4)
            assert error == 2
