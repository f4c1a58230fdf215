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
from itertools import cycle
from types import FrameType
from typing import Any

from bench import wire
from bench.batches import batch_of_exactly, batch_of_records
from bench.load.raw import FETCH_BATCH_BYTES, fetch_batch
from millstream.config.broker import BrokerConfig
from millstream.model.deferred import Deferred
from millstream.net.listener import Peer
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.services import Services
from millstream.server.broker import Broker
from millstream.server.dispatch import Dispatcher, DispatchSession

PRODUCE_TOPIC, FETCH_TOPIC = "produced", "fetched"
FETCH_BATCHES = 2_048  # of 16,384 bytes: 34 MB
ROUNDS, REQUESTS_IN_A_ROUND = 30, 300
COUNTED_REQUESTS = 100

Request = Callable[[], object]


class InProcess(Broker):
    """A broker that never accepts: its one session is called directly."""

    session: DispatchSession

    def _serve(self, services: Services) -> None:
        self.services = services
        self.session = Dispatcher(services).open_session(Peer(1, "PLAINTEXT", "127.0.0.1", 1))

    def ask(self, frame: bytes) -> None:
        """Serve one request of the set-up."""
        answer = self.session.serve(memoryview(bytearray(frame[4:])))
        if isinstance(answer, Deferred):
            self._wait(answer)


@contextmanager
def broker_in(directory: str) -> Iterator[InProcess]:
    loop = asyncio.new_event_loop()
    settings = {
        "log.dirs": directory,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.flush.policy": "os",
    }
    broker = InProcess(BrokerConfig(settings), loop, on_fatal=lambda: None)
    broker.start()
    try:
        yield broker
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


def fetch(broker: InProcess, size: int) -> Request:
    image = broker.services.metadata.topic(FETCH_TOPIC)
    assert image is not None
    records, batches = fetch_batch().records, size // FETCH_BATCH_BYTES
    frames = cycle(
        [
            memoryview(
                wire.fetch_request(image.topic_id, 0, offset=first * records, max_bytes=size)[4:]
            )
            for first in range(0, FETCH_BATCHES - batches, batches)
        ]
    )
    serve = broker.session.serve
    return lambda: serve(next(frames))


def cpu_us(request: Request) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(REQUESTS_IN_A_ROUND):
            request()
        best = min(best, time.process_time() - start)
    return best / REQUESTS_IN_A_ROUND * 1e6


def executed(request: Request) -> tuple[float, float]:
    """Return (bytecodes, calls of Python functions) of one request."""
    counts = {"opcode": 0, "call": 0}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_opcodes = True
        if event in counts:
            counts[event] += 1
        return trace

    sys.settrace(trace)
    try:
        for _ in range(COUNTED_REQUESTS):
            request()
    finally:
        sys.settrace(None)
    return counts["opcode"] / COUNTED_REQUESTS, counts["call"] / COUNTED_REQUESTS


def main() -> None:
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=place) as directory, broker_in(directory) as broker:
        for topic in (PRODUCE_TOPIC, FETCH_TOPIC):
            broker.ask(wire.create_topic_request(topic, 1, {}))
        for _ in range(FETCH_BATCHES):
            broker.ask(wire.produce_request(FETCH_TOPIC, 0, fetch_batch().data, acks=1))
        metadata = memoryview(wire.metadata_request(PRODUCE_TOPIC)[4:])
        one = batch_of_records(record_bytes=100, count=1).data
        cases: dict[str, Request] = {"produce, one 100-byte record": produce(broker, one)}
        for size in (17_000, 110_000):
            batch = batch_of_exactly(total_bytes=size, record_bytes=1_000).data
            cases[f"produce, {size // 1000} KB"] = produce(broker, batch)
        for size in (1 << 16, 1 << 20):
            cases[f"fetch, {size >> 10} KiB"] = fetch(broker, size)
        cases["metadata, one topic"] = lambda: broker.session.serve(metadata)
        print(f"{'request':30}{'bytecodes':>10}{'calls':>8}{'CPU µs':>9}")
        for name, request in cases.items():
            if not isinstance(request(), Outgoing):
                raise SystemExit(f"{name} was not answered at once")
            bytecodes, calls = executed(request)
            print(f"{name:30}{bytecodes:10.0f}{calls:8.0f}{cpu_us(request):9.1f}", flush=True)


if __name__ == "__main__":
    main()
