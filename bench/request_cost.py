"""What a request costs inside the broker, without sockets: bytecodes, calls and CPU time.

The CPU time is the best of many rounds, yet on a shared machine it moves by a tenth. The bytecodes
that Python executes do not: two commits are compared by them first. Run as
``python -m bench.request_cost``; with ``PYTHONPATH`` set to the sources of another commit it
measures those.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from types import FrameType
from typing import Any

from bench import wire
from bench.batches import batch_of_exactly, batch_of_records
from bench.load.raw import FETCH_BATCH_BYTES, fetch_batch
from millstream.config.broker import BrokerConfig
from millstream.model.deferred import Deferred
from millstream.model.topic import TopicId
from millstream.net.listener import Peer
from millstream.protocol.codec import decode_response
from millstream.protocol.messages.metadata import MetadataResponse
from millstream.protocol.outgoing import Outgoing
from millstream.server.broker import Broker

PRODUCE_TOPIC, FETCH_TOPIC = "produced", "fetched"

Request = Callable[[], object]


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


class InProcess:
    """A running broker with one session that is called directly, without a socket."""

    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.session = broker.open_session(Peer(1, "PLAINTEXT", "127.0.0.1", 1))

    def ask(self, frame: bytes) -> Outgoing:
        """Serve one request of the set-up and wait for its answer."""
        answer = self.session.serve(memoryview(bytearray(frame[4:])))
        if isinstance(answer, Deferred):
            if not answer.done:
                answer.on_done(lambda _: self._loop.stop())
                self._loop.run_forever()
            answer = answer.result()
        assert answer is not None
        return answer


@contextmanager
def broker_in(directory: str) -> Iterator[InProcess]:
    loop = asyncio.new_event_loop()
    settings = {
        "log.dirs": directory,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.flush.policy": "os",
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


def cpu_us(request: Request, *, rounds: int, requests_in_a_round: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(requests_in_a_round):
            request()
        best = min(best, time.process_time() - start)
    return best / requests_in_a_round * 1e6


def executed(request: Request, times: int) -> tuple[float, float]:
    """Return (bytecodes, calls of Python functions) of one request."""
    counts = {"opcode": 0, "call": 0}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in counts:
            counts[event] += 1
        return trace

    before = sys.gettrace()
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
    """Measure one kind of request after the other."""
    for name, request in requests(broker, effort.fetch_batches).items():
        if not isinstance(request(), Outgoing):
            raise SystemExit(f"{name} was not answered at once")
        bytecodes, calls = executed(request, effort.counted_requests)
        best_us = cpu_us(
            request, rounds=effort.rounds, requests_in_a_round=effort.requests_in_a_round
        )
        yield Cost(name, bytecodes, calls, best_us)


def main() -> None:
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as directory, broker_in(directory) as broker:
        print(f"{'request':30}{'bytecodes':>10}{'calls':>8}{'CPU µs':>9}")
        for cost in measured(broker, Effort()):
            print(
                f"{cost.request:30}{cost.bytecodes:10.0f}{cost.calls:8.0f}{cost.cpu_us:9.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
