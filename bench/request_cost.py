"""What a request costs inside the broker, without sockets: bytecodes, calls and CPU time.

The CPU time is the best and the median of many rounds, in which the requests take turns, yet on a
shared machine it moves by a tenth. The bytecodes that Python executes do not: two commits are
compared by them first. Run as
``python -m bench.request_cost``; with ``PYTHONPATH`` set to the sources of another commit it
measures those. With ``--authorizer`` the broker asks its authorizer what the client may do, with
``--quotas`` it counts bytes under quotas far away, with ``--audit`` its audit log counts each
request (a minute apart it would record one). Logs are in memory; ``--directory PATH`` puts them on
a disk.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from types import FrameType
from typing import Any, Final

from bench import machine, wire
from bench.batches import batch_of_exactly, batch_of_records
from bench.load.raw import FETCH_BATCH_BYTES, fetch_batch
from millstream.config.broker import BrokerConfig
from millstream.model.deferred import Deferred
from millstream.model.topic import TopicId
from millstream.net.peer import Peer
from millstream.protocol.codec import decode_response
from millstream.protocol.messages.metadata import MetadataResponse
from millstream.protocol.outgoing import Outgoing
from millstream.server.broker import Broker

PRODUCE_TOPIC, FETCH_TOPIC = "produced", "fetched"

AUTHORIZING: Final = {
    "authorizer.class.name": "standard",
    "allow.everyone.if.no.acl.found": "true",
}
"""Each decision is asked for; the answer is always yes."""

LIMITING: Final = {
    "quota.producer.default": str(10**12),
    "quota.consumer.default": str(10**12),
}
"""What each client sends and is sent is counted; nobody comes near its quota."""

AUDITING: Final = {
    "audit.log.produce.allowed": "topic",
    "audit.log.consume.allowed": "topic",
    "audit.log.describe.allowed": "topic",
}
"""Every request is recorded, or counted as one more of those that are."""

Request = Callable[[], object]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each request is made, and how many batches (16,384 bytes each) fetches read."""

    fetch_batches: int = 2_048
    rounds: int = 30
    requests_in_a_round: int = 300
    counted_requests: int = 100


@dataclass(frozen=True, slots=True)
class Cost:
    """What one request of a kind costs."""

    request: str
    bytecodes: float
    calls: float
    cpu_us: float
    median_us: float


class InProcess:
    """A running broker with one session that is called directly, without a socket."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.session = broker.open_session(Peer(1, "PLAINTEXT", "127.0.0.1", 1))

    def ask(self, frame: bytes) -> Outgoing:
        """Serve one request of the set-up and wait for its answer."""
        answer = self.session.serve(memoryview(bytearray(frame[4:])))
        if isinstance(answer, Deferred):
            if not answer.done:
                answer.on_done(lambda _: self.loop.stop())
                self.loop.run_forever()
            answer = answer.result()
        assert answer is not None
        return answer


@contextmanager
def broker_in(directory: str, more_settings: Mapping[str, str] = {}) -> Iterator[InProcess]:
    loop = asyncio.new_event_loop()
    settings = {
        "log.dirs": directory,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.flush.policy": "os",
        **more_settings,
    }
    broker = Broker(BrokerConfig(settings), loop, on_fatal=lambda: None)
    broker.start()
    try:
        yield InProcess(broker, loop)
    finally:
        broker.stop()
        loop.close()


def produce(broker: InProcess, batch: bytes) -> Request:
    frame = bytearray(wire.produce_request(PRODUCE_TOPIC, 0, batch, acks=1)[4:])
    view, serve = memoryview(frame), broker.session.serve
    base_offset = frame.find(batch)
    unassigned = bytes(8)

    def request() -> object:
        # The broker writes the offset into the buffer that it was given.
        frame[base_offset : base_offset + 8] = unassigned
        return serve(view)

    return request


def fetch(broker: InProcess, topic_id: TopicId, *, size: int, batch_count: int) -> Request:
    """Fetch ``size`` bytes from one batch after the other, of ``batch_count`` in the topic."""
    records, fetched = fetch_batch().records, size // FETCH_BATCH_BYTES
    frames = cycle(
        [
            memoryview(wire.fetch_request(topic_id, 0, offset=first * records, max_bytes=size)[4:])
            for first in range(0, batch_count - fetched, fetched)
        ]
    )
    serve = broker.session.serve
    return lambda: serve(next(frames))


def cpu_us(request: Request, count: int) -> float:
    """Return the CPU time of one of ``count`` requests, in microseconds."""
    start = time.process_time()
    for _ in range(count):
        request()
    return (time.process_time() - start) / count * 1e6


def executed(request: Request, times: int) -> tuple[float, float]:
    """Return (bytecodes, calls of Python functions) of one request."""
    counts = {"opcode": 0, "call": 0}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in counts:
            counts[event] += 1
        return trace

    before = sys.gettrace()
    # From Python 3.12 on, settrace looks whether any frame wants opcodes at all.
    sys._getframe().f_trace_opcodes = True
    sys.settrace(trace)
    try:
        for _ in range(times):
            request()
    finally:
        sys.settrace(before)
    return counts["opcode"] / times, counts["call"] / times


def topic_id_of(broker: InProcess, topic: str) -> TopicId:
    answer = broker.ask(wire.metadata_request(topic)).join()
    _, metadata = decode_response(wire.METADATA, wire.METADATA_VERSION, answer[4:])
    assert isinstance(metadata, MetadataResponse)
    return metadata.topics[0].topic_id


def requests(broker: InProcess, fetch_batches: int) -> dict[str, Request]:
    """Create the topics and return the requests that are measured, by name."""
    for topic in (PRODUCE_TOPIC, FETCH_TOPIC):
        broker.ask(wire.create_topic_request(topic, 1, {}))
    topic_id = topic_id_of(broker, FETCH_TOPIC)
    for _ in range(fetch_batches):
        broker.ask(wire.produce_request(FETCH_TOPIC, 0, fetch_batch().data, acks=1))
    metadata = memoryview(wire.metadata_request(PRODUCE_TOPIC)[4:])
    one = batch_of_records(record_bytes=100, count=1).data
    cases: dict[str, Request] = {"produce, one 100-byte record": produce(broker, one)}
    for size in (17_000, 110_000):
        batch = batch_of_exactly(total_bytes=size, record_bytes=1_000).data
        cases[f"produce, {size // 1000} KB"] = produce(broker, batch)
    for size in (1 << 16, 1 << 20):
        cases[f"fetch, {size >> 10} KiB"] = fetch(
            broker, topic_id, size=size, batch_count=fetch_batches
        )
    cases["metadata, one topic"] = lambda: broker.session.serve(metadata)
    return cases


def measured(broker: InProcess, effort: Effort) -> Iterator[Cost]:
    """Count what each kind of request executes, then let them take turns for the CPU time."""
    cases = requests(broker, effort.fetch_batches)
    for name, request in cases.items():
        if not isinstance(request(), Outgoing):
            raise SystemExit(f"{name} was not answered at once")
    counted = {name: executed(request, effort.counted_requests) for name, request in cases.items()}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(effort.rounds):
        for name, request in cases.items():
            times[name].append(cpu_us(request, effort.requests_in_a_round))
    for name, (bytecodes, calls) in counted.items():
        yield Cost(name, bytecodes, calls, min(times[name]), median(times[name]))


def main() -> None:
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    if "--directory" in sys.argv[1:]:
        place = sys.argv[sys.argv.index("--directory") + 1]
    settings: dict[str, str] = {}
    options = (
        ("--authorizer", AUTHORIZING),
        ("--quotas", LIMITING),
        ("--audit", AUDITING),
        ("--metrics", {"metrics.port": str(free_port())}),
    )
    for option, more in options:
        if option in sys.argv[1:]:
            settings |= more
    with (
        tempfile.TemporaryDirectory(dir=place) as directory,
        broker_in(directory, settings) as broker,
    ):
        for name, value in machine.interpreter().items():
            print(f"{name}: {value}")
        print(f"{'request':30}{'bytecodes':>10}{'calls':>8}{'CPU µs':>9}{'median':>9}")
        for cost in measured(broker, Effort()):
            print(
                f"{cost.request:30}{cost.bytecodes:10.0f}{cost.calls:8.0f}{cost.cpu_us:9.1f}"
                f"{cost.median_us:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
