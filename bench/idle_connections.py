"""What ten thousand clients that say nothing cost a broker."""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from contextlib import ExitStack
from functools import partial

from bench import wire
from bench.admin import Admin, connect_when_up
from bench.batches import batch_of_records
from bench.compaction import steady_produce
from bench.figures import Figure
from bench.options import MB
from bench.peers.subject import Node, SubjectFailedError
from bench.process import cpu_seconds, resident_bytes
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns

CONNECTIONS, QUICK_CONNECTIONS = 10_000, 500
# Fewer than socket.listen.backlog.size, 50: one too many waits a second until it tries again.
AT_ONCE = 40
SETTINGS = {"log.flush.policy": "os"}
SAMPLES, QUICK_SAMPLES = 3, 1
IDLE_S, QUICK_IDLE_S = 10.0, 2.0
LATENCY_S, QUICK_LATENCY_S = 10.0, 2.0
ANSWER_TIMEOUT_S = 30.0
# Kafka closes what is idle for ten minutes, which is longer than this takes.
API_VERSIONS = wire.frame(18, 0, b"", flexible=False)


def idle_connections(session: Session) -> list[Figure]:
    """Connect, ask each connection for ApiVersions, and look at memory, CPU and latency."""
    quick = session.options.quick
    count = QUICK_CONNECTIONS if quick else CONNECTIONS
    what = f"{count:,} idle connections"
    opened = Figure(f"{what}: connected and answered, each", "µs")
    memory = Figure(f"{what}: memory, each", "KB", 1)
    cpu = Figure(f"{what}: CPU while idle", "% of a core", 2)
    alone = Figure("produce p50 without them", "ms", 2)
    beside = Figure("produce p50 beside them", "ms", 2)
    figures = [opened, memory, cpu, alone, beside]
    for _ in range(QUICK_SAMPLES if quick else SAMPLES):
        for subject, spawn in spawns(session, SETTINGS).items():
            attempt(figures, subject, partial(_sample, session, subject, spawn, count, figures))
    return figures


def _sample(
    session: Session, subject: str, spawn: Spawn, count: int, figures: list[Figure]
) -> None:
    opened, memory, cpu, alone, beside = figures
    quick = session.options.quick
    latency_s = QUICK_LATENCY_S if quick else LATENCY_S
    idle_s = QUICK_IDLE_S if quick else IDLE_S
    directory = session.stage.directory / f"connections {subject}"
    with running(spawn, directory) as node, connect_when_up(node) as admin, ExitStack() as stack:
        admin.create_topic("measured", 1)
        admin.produce("measured", batch_of_records(record_bytes=100, count=1).data)
        alone.add(subject, _median_latency(admin, latency_s))
        before = resident_bytes(node.pid)
        start = time.perf_counter()
        connect(node, count, stack, API_VERSIONS)
        opened.add(subject, (time.perf_counter() - start) / count * 1e6)
        time.sleep(1.0)
        memory.add(subject, (resident_bytes(node.pid) - before) / count / 1_000)
        cpu_before = cpu_seconds(node.pid)
        time.sleep(idle_s)
        cpu.add(subject, (cpu_seconds(node.pid) - cpu_before) / idle_s * 100)
        beside.add(subject, _median_latency(admin, latency_s))
        session.say(f"{subject}: {count} connections, {resident_bytes(node.pid) / MB:.0f} MB")


def _median_latency(admin: Admin, seconds: float) -> float:
    return statistics.median(steady_produce(admin, "measured", seconds=seconds))


def connect(node: Node, count: int, stack: ExitStack, request: bytes) -> None:
    """Open the connections, `AT_ONCE` at a time, send a request on each and wait for an answer."""
    for first in range(0, count, AT_ONCE):
        with selectors.DefaultSelector() as selector:
            waiting = min(AT_ONCE, count - first)
            for _ in range(waiting):
                connection = socket.create_connection((node.host, node.port), timeout=30)
                stack.callback(connection.close)
                connection.sendall(request)
                selector.register(connection, selectors.EVENT_READ)
            while waiting:
                ready = selector.select(ANSWER_TIMEOUT_S)
                if not ready:
                    raise SubjectFailedError(f"{waiting} connections got no answer")
                for key, _ in ready:
                    assert isinstance(key.fileobj, socket.socket)
                    if not key.fileobj.recv(1 << 16):
                        raise SubjectFailedError("a connection was closed")
                    selector.unregister(key.fileobj)
                    waiting -= 1
