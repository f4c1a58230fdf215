"""How fast a broker compacts, and what that does to the answers of other topics."""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.admin import Admin, connect_when_up
from bench.batches import batch_of_records
from bench.figures import Figure
from bench.keyed import KeyedLoad, keyed_stream, write_keyed
from bench.options import MB
from bench.peers.subject import Node, SubjectFailedError
from bench.process import cpu_seconds
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns

TOPIC = "compacted"
RECORD_SIZES = (100, 1_000)
RECORDS_PER_KEY = 4
POLL_S = 0.01
TIMEOUT_S, QUICK_TIMEOUT_S = 900.0, 150.0
# Both leave writing back to the system; to Kafka log.flush.policy means nothing.
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.flush.policy": "os",
}
TOPIC_SETTINGS = {"segment.bytes": "67108864", "min.cleanable.dirty.ratio": "0.01"}
# Small segments, so that the cleaner is at work nearly all of the time.
STREAM_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "2097152",
    "min.cleanable.dirty.ratio": "0.01",
}
STREAM_RECORDS_PER_S, STREAM_KEYS = 5_000, 20_000
REQUESTS_PER_S = 200
LATENCY_S, QUICK_LATENCY_S = 30.0, 3.0


def compaction(session: Session) -> list[Figure]:
    """Fill a log, then let it be compacted once: input over time, and over CPU time."""
    figures = []
    quick = session.options.quick
    total_bytes = session.options.scaled(int(session.options.log_gb * 1_000_000_000) // 5)
    for record_bytes in RECORD_SIZES:
        records = total_bytes // record_bytes
        load = KeyedLoad(TOPIC, records, max(1, records // RECORDS_PER_KEY), record_bytes)
        name = f"compaction, {record_bytes}-byte records, {RECORDS_PER_KEY} to a key"
        speed = Figure(f"{name}: input", "MB/s")
        per_core = Figure(f"{name}: input per second of CPU", "MB/s")
        kept = Figure(f"{name}: bytes left", "%", 1)
        found = [speed, per_core, kept]
        for _ in range(1 if quick else session.options.pairs):
            for subject, spawn in spawns(session, SETTINGS).items():
                work = partial(_compact_once, session, subject, spawn, load, found)
                attempt(found, subject, work)
        figures += found
    return figures


def _compact_once(
    session: Session, subject: str, spawn: Spawn, load: KeyedLoad, figures: list[Figure]
) -> None:
    speed, per_core, kept = figures
    directory = session.stage.directory / f"compaction {subject}"
    timeout_s = QUICK_TIMEOUT_S if session.options.quick else TIMEOUT_S
    with running(spawn, directory) as node, connect_when_up(node) as admin:
        admin.create_topic(TOPIC, 1, TOPIC_SETTINGS)
        bootstrap = f"{node.host}:{node.port}"
        write_keyed(bootstrap, load)
        logs = sorted((directory / "data" / f"{TOPIC}-0").glob("*.log"))
        if len(logs) < 2:
            raise SubjectFailedError("the log has no closed segment to compact")
        active = int(logs[-1].stem)
        input_bytes = sum(path.stat().st_size for path in logs[:-1])
        cpu_before, start = cpu_seconds(node.pid), time.perf_counter()
        _make_compacted(bootstrap)
        _wait_until_clean(node, directory / "data", active, timeout_s)
        seconds = time.perf_counter() - start
        cpu_s = cpu_seconds(node.pid) - cpu_before
        left = [path for path in logs[0].parent.glob("*.log") if int(path.stem) < active]
        speed.add(subject, input_bytes / seconds / MB)
        per_core.add(subject, input_bytes / cpu_s / MB)
        kept.add(subject, sum(path.stat().st_size for path in left) / input_bytes * 100)


def _make_compacted(bootstrap: str) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def _wait_until_clean(node: Node, data: Path, active: int, timeout_s: float) -> None:
    """Return once the cleaner's checkpoint has come to the active segment."""
    deadline = time.monotonic() + timeout_s
    checkpoint = data / "cleaner-offset-checkpoint"
    while True:
        if checkpoint.exists():
            for line in checkpoint.read_text(encoding="utf-8").splitlines():
                if line.startswith(f"{TOPIC} 0 ") and int(line.split()[2]) >= active:
                    return
        node.check_alive()
        if time.monotonic() > deadline:
            raise SubjectFailedError(f"nothing was compacted within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def latency(session: Session) -> list[Figure]:
    """Produce at a steady rate beside a topic that is compacted all the time, or never."""
    figures = []
    for name, enabled in (("off", "false"), ("on", "true")):
        half = Figure(f"produce p50, compaction {name}", "ms", 2)
        tail = Figure(f"produce p99, compaction {name}", "ms", 2)
        settings = {**SETTINGS, "log.cleaner.enable": enabled}
        for _ in range(1 if session.options.quick else session.options.pairs):
            for subject, spawn in spawns(session, settings).items():
                work = partial(_latency_once, session, subject, spawn, [half, tail])
                attempt([half, tail], subject, work)
        figures += [half, tail]
    return figures


def _latency_once(session: Session, subject: str, spawn: Spawn, figures: list[Figure]) -> None:
    directory = session.stage.directory / f"latency {subject}"
    seconds = QUICK_LATENCY_S if session.options.quick else LATENCY_S
    with running(spawn, directory) as node, connect_when_up(node) as admin:
        admin.create_topic(TOPIC, 1, STREAM_SETTINGS)
        admin.create_topic("measured", 1)
        load = KeyedLoad(TOPIC, 0, STREAM_KEYS, 1_000)
        with keyed_stream(f"{node.host}:{node.port}", load, STREAM_RECORDS_PER_S):
            took_ms = steady_produce(admin, "measured", seconds=seconds)
        percentiles = statistics.quantiles(took_ms, n=100)
        figures[0].add(subject, percentiles[49])
        figures[1].add(subject, percentiles[98])


def steady_produce(
    admin: Admin, topic: str, *, seconds: float, warms_up: bool = True
) -> list[float]:
    """Produce one record at a time, `REQUESTS_PER_S` times a second, and return how long each
    answer took in milliseconds, counted from when its request was due. Some that are not counted
    come first where it `warms_up`.
    """
    batch = batch_of_records(record_bytes=100, count=1).data
    took_ms = []
    for _ in range(REQUESTS_PER_S // 2 if warms_up else 0):
        admin.produce(topic, batch, acks=1)
    start = time.perf_counter()
    for number in range(int(seconds * REQUESTS_PER_S)):
        due = start + number / REQUESTS_PER_S
        time.sleep(max(0.0, due - time.perf_counter()))
        admin.produce(topic, batch, acks=1)
        took_ms.append((time.perf_counter() - due) * 1_000)
    return took_ms
