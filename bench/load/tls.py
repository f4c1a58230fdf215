"""Load over TLS: frames encoded beforehand, a thread for each connection, answers checked.

OpenSSL under Python's ``ssl`` encrypts and decrypts outside Python's lock. The client costs about
as much CPU as the broker, so the brokers' CPU time says more here than the throughput does.

Run as ``python -m bench.load.tls SPEC``, SPEC in JSON.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from bench import wire
from bench.load.raw import (
    FETCH_BATCH_BYTES,
    ProduceSpec,
    WrongAnswerError,
    fetch_batch,
)
from bench.load.report import LoadReport, measured

WINDOW = 5


@dataclass(frozen=True)
class TlsSpec:
    """``kind`` is produce, fetch or handshake; ``size`` the bytes of a batch or of a fetch. A
    connection has a partition of its own and makes ``requests``.
    """

    kind: str
    port: int
    broker_pids: tuple[int, ...]
    connections: int
    requests: int
    trust: str
    size: int = 0
    topic: str = ""
    topic_id: str = ""
    batches: int = 0


def connect(spec: TlsSpec, context: ssl.SSLContext) -> ssl.SSLSocket:
    sock = socket.create_connection(("127.0.0.1", spec.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(sock, server_hostname="localhost")


def read_whole(sock: ssl.SSLSocket, buffer: memoryview) -> memoryview:
    """Read one answer and return it without its size."""
    read_exactly(sock, buffer[:4])
    (size,) = struct.unpack_from(">i", buffer)
    read_exactly(sock, buffer[:size])
    return buffer[:size]


def read_exactly(sock: ssl.SSLSocket, into: memoryview) -> None:
    while into:
        count = sock.recv_into(into)
        if not count:
            raise WrongAnswerError("the broker closed the connection")
        into = into[count:]


def exchange(sock: ssl.SSLSocket, frames: list[bytes], requests: int, check: int) -> None:
    """Send ``requests`` frames in turn, ``WINDOW`` at once; the error code stands at ``check``."""
    buffer = memoryview(bytearray(4 << 20))
    sent = 0
    while sent < min(WINDOW, requests):
        sock.sendall(frames[sent % len(frames)])
        sent += 1
    for _ in range(requests):
        answer = read_whole(sock, buffer)
        (error,) = struct.unpack_from(">h", answer, check - 4)
        if error:
            raise WrongAnswerError(f"error {error}")
        if sent < requests:
            sock.sendall(frames[sent % len(frames)])
            sent += 1


def frames_of(spec: TlsSpec, partition: int) -> tuple[list[bytes], int]:
    """Return the requests of one connection, and where an answer's error code stands."""
    if spec.kind == "produce":
        batch = produced(spec).batch().data
        return [wire.produce_request(spec.topic, partition, batch, acks=1)], wire.produce_error_at(
            spec.topic
        )
    records = fetch_batch().records
    step = spec.size // FETCH_BATCH_BYTES
    topic_id = bytes.fromhex(spec.topic_id)
    return [
        wire.fetch_request(topic_id, partition, offset=first * records, max_bytes=spec.size)
        for first in range(0, spec.batches - step + 1, step)
    ], wire.FETCH_PARTITION_ERROR_AT


def produced(spec: TlsSpec) -> ProduceSpec:
    return ProduceSpec((), (), spec.topic, spec.requests, spec.size, 1_000)


def run(spec: TlsSpec) -> LoadReport:
    context = ssl.create_default_context(cafile=spec.trust)
    total = spec.connections * spec.requests
    with ThreadPoolExecutor(spec.connections) as threads:
        if spec.kind == "handshake":

            def shake(_: int) -> None:
                for _ in range(spec.requests):
                    connect(spec, context).close()

            def work() -> None:
                list(threads.map(shake, range(spec.connections)))

            return measured(spec.broker_pids, work, requests=total, records=0, moved_bytes=0)
        sockets = [connect(spec, context) for _ in range(spec.connections)]
        plans = [frames_of(spec, partition) for partition in range(spec.connections)]

        def serve(index: int) -> None:
            frames, check = plans[index]
            exchange(sockets[index], frames, spec.requests, check)

        def move() -> None:
            list(threads.map(serve, range(spec.connections)))

        report = measured(
            spec.broker_pids, move, requests=total, records=0, moved_bytes=total * spec.size
        )
        for sock in sockets:
            sock.close()
        return report


def to_json(spec: TlsSpec) -> str:
    return json.dumps(asdict(spec))


if __name__ == "__main__":
    print(run(TlsSpec(**json.loads(sys.argv[1]))).to_json())
