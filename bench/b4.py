"""B4: start to first produce and consume, memory, install size, and many partitions."""

from __future__ import annotations

import time
from functools import partial

from bench.admin import connect_when_up
from bench.batches import batch_of_records
from bench.figures import Figure
from bench.install_size import kafka_bytes, millstream_bytes
from bench.many_partitions import many_partitions
from bench.options import MB
from bench.pairs import KAFKA, MILLSTREAM
from bench.process import cpu_seconds, resident_bytes
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns
from bench.stage import Broker
from bench.tables import Section, figures_table
from bench.work import RawFetch, RawProduce, fetch_from_broker, produce_to_broker

STARTS, QUICK_STARTS = 20, 2
MEMORY_SAMPLES, QUICK_MEMORY_SAMPLES = 3, 1
IDLE_S, QUICK_IDLE_S = 10.0, 2.0

CONDITIONS = (
    "default settings of both: Millstream fsyncs before it answers, Apache Kafka (-Xms1G -Xmx1G) "
    "does not; program files in the page cache; subjects alternate; median (95th percentile)",
    "start: from the spawn of the process to the answer of a produce with acks=all to a topic that "
    "CreateTopics made, then to the first record fetched; connecting is tried every 2 ms; Kafka's "
    "directory is formatted before its clock starts, Millstream's does not exist",
    f"memory: resident set, {IDLE_S:.0f} s after the start, and after 1 GB produced and fetched; "
    "CPU while idle: user and system time over these seconds",
    "size: Kafka's jars; Millstream with the packages it requires, no extras; the runtimes of Java "
    "and Python on their own lines",
    "partitions: spread over topics of 1,000, one record in each, clean stop; from the spawn until "
    "every partition answers ListOffsets with its record",
    "published for container images: apache/kafka on Java 21 458 MB unpacked, 3.9 s until ready, "
    "382 MB of memory (KIP-975); kafka-native about 0.13 s and 250 MB (KIP-974)",
)


def run(session: Session) -> list[Section]:
    """Run every part of B4 whose name `--only` leaves, on nodes of its own."""
    figures = []
    for name, part in (
        ("start", _starts),
        ("memory", _memory),
        ("size", _sizes),
        ("partitions", many_partitions),
    ):
        if session.options.only in name:
            found = part(session)
            figures += found
            session.say_figures(name, found)
    return [figures_table("B4 · start, memory and size of one broker", figures)]


def _starts(session: Session) -> list[Figure]:
    produced = Figure("start to the first acknowledged produce", "s", 3, at_most=0.25)
    consumed = Figure("start to the first record consumed", "s", 3)
    batch = batch_of_records(record_bytes=100, count=1).data
    directory = session.stage.directory / "start"

    def start_once(subject: str, spawn: Spawn) -> None:
        with running(spawn, directory) as node, connect_when_up(node) as admin:
            admin.create_topic("first", 1)
            admin.produce("first", batch)
            produced.add(subject, time.perf_counter() - node.spawned_at)
            topic_id = admin.topic_id("first")
            while not admin.fetch(topic_id):
                pass
            consumed.add(subject, time.perf_counter() - node.spawned_at)

    for _ in range(QUICK_STARTS if session.options.quick else STARTS):
        for subject, spawn in spawns(session).items():
            attempt([produced, consumed], subject, partial(start_once, subject, spawn))
    return [produced, consumed]


def _memory(session: Session) -> list[Figure]:
    quick = session.options.quick
    idle = Figure("resident memory, idle", "MB", at_most=50)
    idle_cpu = Figure("CPU while idle", "% of a core", 2)
    loaded = Figure("resident memory after load", "MB")
    figures = [idle, idle_cpu, loaded]
    idle_s = QUICK_IDLE_S if quick else IDLE_S
    directory = session.stage.directory / "memory"

    def sample(subject: str, spawn: Spawn) -> None:
        with running(spawn, directory) as node:
            with connect_when_up(node):
                pass
            # The first second still belongs to the start.
            time.sleep(1.0)
            cpu_before = cpu_seconds(node.pid)
            time.sleep(idle_s)
            idle_cpu.add(subject, (cpu_seconds(node.pid) - cpu_before) / idle_s * 100)
            idle.add(subject, resident_bytes(node.pid) / MB)
            scaled = session.options.scaled
            broker = Broker(node)
            produce = RawProduce(4, 110_000, 1_000, scaled(9_000))
            produce_to_broker(session.stage, broker, produce)
            fetch_from_broker(broker, RawFetch(4, 1 << 20, scaled(1_000)))
            loaded.add(subject, resident_bytes(node.pid) / MB)

    for _ in range(QUICK_MEMORY_SAMPLES if quick else MEMORY_SAMPLES):
        for subject, spawn in spawns(session).items():
            attempt(figures, subject, partial(sample, subject, spawn))
    return figures


def _sizes(session: Session) -> list[Figure]:
    program = Figure("install size, the program", "MB")
    runtime = Figure("install size, its runtime", "MB")
    install = session.stage.install
    measured = {MILLSTREAM: millstream_bytes()}
    if install is not None:
        measured[KAFKA] = kafka_bytes(install)
    for subject, (program_bytes, runtime_bytes) in measured.items():
        program.add(subject, program_bytes / MB)
        runtime.add(subject, runtime_bytes / MB)
    return [program, runtime]
