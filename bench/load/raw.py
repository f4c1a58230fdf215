"""The raw load: frames encoded beforehand go out, answers are checked and thrown away.

It is meant to be much cheaper than any broker. One process serves all its connections from one
epoll loop; every frame of a connection is the same bytes, so the answers to one wake-up are paid
back with one `send`; a fetch response is read up to the length of its records, and the kernel
drops the rest (MSG_TRUNC on a TCP socket) without copying it here.

Every answer's error codes are looked at. Run as ``python -m bench.load.raw SPEC``, SPEC in JSON.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from bench import wire
from bench.batches import Batch, batch_of_exactly, batch_of_records
from bench.load.report import LoadReport, measured
from bench.load.settle import replicas_settle


class WrongAnswerError(Exception):
    """A broker's answer had an error code or not the size that a success has."""


@dataclass(frozen=True)
class ProduceSpec:
    """Connection `i` sends `requests` batches to partition `i` at the broker that listens on
    `ports[i]`, at most `window` unanswered.

    A batch holds one record when `batch_bytes` is 0; else it has exactly that size. With `settles`
    the brokers' CPU time counts until every replica has every record.
    """

    ports: tuple[int, ...]
    broker_pids: tuple[int, ...]
    topic: str
    requests: int
    batch_bytes: int
    record_bytes: int
    window: int = 5
    acks: int = 1
    settles: bool = False
    host: str = "127.0.0.1"

    @property
    def connections(self) -> int:
        return len(self.ports)

    def batch(self) -> Batch:
        if self.batch_bytes == 0:
            return batch_of_records(record_bytes=self.record_bytes, count=1)
        return batch_of_exactly(total_bytes=self.batch_bytes, record_bytes=self.record_bytes)


@dataclass(frozen=True)
class FetchSpec:
    """Connection `i` fetches partition `i` from its start, again and again, `requests` times.

    The partition holds `batches` batches of `FETCH_BATCH_BYTES`, and `fetch_bytes` is a multiple
    of that, so every answer carries exactly `fetch_bytes` and the next offset is known ahead.
    With `copies` the records are read into memory as a consumer would, else the kernel drops them.
    """

    port: int
    broker_pids: tuple[int, ...]
    topic_id: str
    connections: int
    requests: int
    fetch_bytes: int
    batches: int
    window: int = 5
    copies: bool = False
    host: str = "127.0.0.1"


FETCH_BATCH_BYTES = 16_384
FETCH_RECORD_BYTES = 1_000


def fetch_batch() -> Batch:
    """Return the batch that fills the topics fetched from."""
    return batch_of_exactly(total_bytes=FETCH_BATCH_BYTES, record_bytes=FETCH_RECORD_BYTES)


class Connection:
    """One non-blocking socket with bytes that could not be sent yet."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.unsent: list[memoryview] = []
        self.answers_due = 0

    def send(self, data: memoryview) -> None:
        """Send now what the socket takes and keep the rest, in order."""
        if self.unsent:
            self.unsent.append(data)
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.unsent.append(data[sent:])

    def on_writable(self) -> None:
        waiting, self.unsent = self.unsent, []
        for data in waiting:
            self.send(data)


class ProduceConnection(Connection):
    """Sends copies of one frame; all its answers have one known size."""

    def __init__(self, spec: ProduceSpec, partition: int, batch: bytes) -> None:
        super().__init__(spec.host, spec.ports[partition])
        frame = wire.produce_request(spec.topic, partition, batch, acks=spec.acks)
        self._frame_bytes = len(frame)
        self._frames = memoryview(frame * spec.window)
        self._window = spec.window
        self._to_send = spec.requests
        self._error_at = wire.produce_error_at(spec.topic)
        self._answer_bytes = len(wire.produce_response(spec.topic))
        self._answers = bytearray(4096)
        self._filled = 0
        self.answers_due = spec.requests

    def begin(self) -> None:
        self._send_frames(self._window)

    def _send_frames(self, count: int) -> None:
        count = min(count, self._to_send)
        if count:
            self._to_send -= count
            self.send(self._frames[: count * self._frame_bytes])

    def on_readable(self) -> None:
        answers, size = self._answers, self._answer_bytes
        received = self.socket.recv_into(memoryview(answers)[self._filled :])
        if received == 0:
            raise WrongAnswerError("the broker closed the connection")
        self._filled += received
        count, rest = divmod(self._filled, size)
        for start in range(0, count * size, size):
            error_at = start + self._error_at
            if answers[error_at] or answers[error_at + 1]:
                raise WrongAnswerError(f"Produce: error {answers[error_at + 1]}")
            if int.from_bytes(answers[start : start + 4], "big") != size - 4:
                raise WrongAnswerError("a produce answer has an unexpected size")
        if rest:
            answers[:rest] = answers[count * size : self._filled]
        self._filled = rest
        self.answers_due -= count
        self._send_frames(count)


class FetchConnection(Connection):
    """Sends its requests in turn, reads the head of each answer and lets the records drop."""

    def __init__(self, spec: FetchSpec, partition: int, records_per_batch: int) -> None:
        super().__init__(spec.host, spec.port)
        batches_per_fetch = spec.fetch_bytes // FETCH_BATCH_BYTES
        self._requests = [
            memoryview(
                wire.fetch_request(
                    bytes.fromhex(spec.topic_id),
                    partition,
                    offset=first * records_per_batch,
                    max_bytes=spec.fetch_bytes,
                )
            )
            for first in range(0, spec.batches - batches_per_fetch + 1, batches_per_fetch)
        ]
        self._window = spec.window
        self._requested = 0
        self._total = spec.requests
        self._fetch_bytes = spec.fetch_bytes
        self._head = memoryview(bytearray(wire.FETCH_HEAD_BYTES))
        self._head_filled = 0
        self._to_drop = 0
        self._waste = memoryview(bytearray(1 << 20))
        self._flags = 0 if spec.copies else socket.MSG_TRUNC
        self.answers_due = spec.requests

    def begin(self) -> None:
        for _ in range(min(self._window, self._total)):
            self._send_next()

    def _send_next(self) -> None:
        if self._requested < self._total:
            self.send(self._requests[self._requested % len(self._requests)])
            self._requested += 1

    def on_readable(self) -> None:
        if self._to_drop == 0:
            received = self.socket.recv_into(self._head[self._head_filled :])
            if received == 0:
                raise WrongAnswerError("the broker closed the connection")
            self._head_filled += received
            if self._head_filled < wire.FETCH_HEAD_BYTES:
                return
            self._to_drop = self._check_head()
            self._head_filled = 0
            # The next request leaves before the bytes of this answer are dropped.
            self._send_next()
        size = min(self._to_drop, len(self._waste))
        try:
            received = self.socket.recv_into(self._waste, size, self._flags)
        except BlockingIOError:
            return
        if received == 0:
            raise WrongAnswerError("the broker closed the connection")
        self._to_drop -= received
        if self._to_drop == 0:
            self.answers_due -= 1

    def _check_head(self) -> int:
        """Return how many bytes of this answer follow its head."""
        head = bytes(self._head)
        (size,) = struct.unpack_from(">i", head)
        (error,) = struct.unpack_from(">h", head, wire.FETCH_ERROR_AT)
        (partition_error,) = struct.unpack_from(">h", head, wire.FETCH_PARTITION_ERROR_AT)
        records_bytes = wire.Reader(head, wire.FETCH_RECORDS_LENGTH_AT).varint() - 1
        if error or partition_error:
            raise WrongAnswerError(f"Fetch: error {error or partition_error}")
        if records_bytes != self._fetch_bytes:
            raise WrongAnswerError(f"asked for {self._fetch_bytes} bytes, got {records_bytes}")
        return int(size) + 4 - wire.FETCH_HEAD_BYTES


def drive(connections: list[ProduceConnection] | list[FetchConnection]) -> None:
    """Serve all connections until each has its last answer."""
    open_connections: dict[int, ProduceConnection | FetchConnection] = {
        connection.socket.fileno(): connection for connection in connections
    }
    blocked: set[int] = set()
    with select.epoll() as poll:
        for descriptor, connection in open_connections.items():
            poll.register(descriptor, select.EPOLLIN)
            connection.begin()
            _follow_unsent(poll, blocked, descriptor, connection)
        while open_connections:
            for descriptor, events in poll.poll():
                connection = open_connections[descriptor]
                if events & select.EPOLLOUT:
                    connection.on_writable()
                if events & ~select.EPOLLOUT:
                    connection.on_readable()
                if connection.answers_due:
                    _follow_unsent(poll, blocked, descriptor, connection)
                else:
                    poll.unregister(descriptor)
                    del open_connections[descriptor]


def _follow_unsent(
    poll: select.epoll, blocked: set[int], descriptor: int, connection: Connection
) -> None:
    """Ask for EPOLLOUT exactly while something is unsent."""
    if connection.unsent:
        if descriptor not in blocked:
            blocked.add(descriptor)
            poll.modify(descriptor, select.EPOLLIN | select.EPOLLOUT)
    elif descriptor in blocked:
        blocked.discard(descriptor)
        poll.modify(descriptor, select.EPOLLIN)


def run_produce(spec: ProduceSpec) -> LoadReport:
    """Produce as the spec says."""
    batch = spec.batch()
    connections = [
        ProduceConnection(spec, partition, batch.data) for partition in range(spec.connections)
    ]
    requests = spec.requests * spec.connections
    records = requests * batch.records
    with ExitStack() as stack:
        settle = None
        if spec.settles:
            settle = replicas_settle(
                stack, spec.host, spec.ports, spec.topic, spec.connections, records
            )
        return measured(
            spec.broker_pids,
            lambda: drive(connections),
            requests=requests,
            records=records,
            moved_bytes=requests * len(batch.data),
            settle=settle,
        )


def run_fetch(spec: FetchSpec) -> LoadReport:
    """Fetch as the spec says."""
    records_per_batch = fetch_batch().records
    connections = [
        FetchConnection(spec, partition, records_per_batch) for partition in range(spec.connections)
    ]
    requests = spec.requests * spec.connections
    batches = spec.fetch_bytes // FETCH_BATCH_BYTES
    return measured(
        spec.broker_pids,
        lambda: drive(connections),
        requests=requests,
        records=requests * batches * records_per_batch,
        moved_bytes=requests * spec.fetch_bytes,
    )


def to_json(spec: ProduceSpec | FetchSpec) -> str:
    """Return the command-line argument for a spec."""
    return json.dumps({"kind": type(spec).__name__, **asdict(spec)})


def main(argument: str) -> None:
    fields = json.loads(argument)
    if fields.pop("kind") == "ProduceSpec":
        report = run_produce(ProduceSpec(**fields))
    else:
        report = run_fetch(FetchSpec(**fields))
    print(report.to_json())


if __name__ == "__main__":
    main(sys.argv[1])
