"""What a fetch from a random offset costs when the log has ten segments, and when ten thousand; how
long others wait while a cold log is searched by time.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

from bench.admin import Admin, connect_when_up
from bench.batches import batch_of_exactly
from bench.compaction import steady_produce
from bench.figures import Figure
from bench.load import raw
from bench.load.time_lookups import LookupSpec, time_lookups
from bench.pairs import MILLSTREAM
from bench.peers.subject import Node
from bench.recovery import leave_the_page_cache
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns
from bench.stage import run_load
from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.platform import raise_open_file_limit
from millstream.records.batch import Batch
from millstream.storage.directory import PartitionDirectory
from millstream.storage.environment import LogEnvironment
from millstream.storage.log import Log
from millstream.storage.open_files import OpenFiles

SEGMENT_COUNTS, QUICK_SEGMENT_COUNTS = (10, 100, 1_000, 10_000), (10, 100)
BATCH_BYTES, RECORD_BYTES = 4_096, 500
BATCHES_PER_SEGMENT = 8
SETTINGS = {
    "internal.segment.bytes": str(BATCHES_PER_SEGMENT * BATCH_BYTES),
    "index.interval.bytes": str(BATCH_BYTES),
}
TIMED_TOPIC = "by-time"
TIMED_SEGMENTS, QUICK_TIMED_SEGMENTS = 1_000, 100
TIMED_SEGMENT_BYTES = 1 << 20
TIMED_BATCH_BYTES = 1_024
TIMED_SETTINGS = {
    "internal.segment.bytes": str(TIMED_SEGMENT_BYTES),
    # An entry in both indexes for each batch, as many as a segment of 4 MB has by default.
    "index.interval.bytes": "1",
    "message.timestamp.type": "LogAppendTime",
}
LOOKUPS_PER_S = 20
LATENCY_S, QUICK_LATENCY_S = 10.0, 3.0
WORST_RATIO = 2.0
FILL_REQUESTS_PER_RUN = 200_000
FETCHES, QUICK_FETCHES = 5_000, 200
LOOKUPS, QUICK_LOOKUPS = 50_000, 2_000


def lookups(session: Session) -> list[Figure]:
    """Look up random offsets through the broker, and in process."""
    counts = QUICK_SEGMENT_COUNTS if session.options.quick else SEGMENT_COUNTS
    figures = []
    for count in counts:
        figure = Figure(f"fetch of one batch at a random offset, {count:,} segments", "µs", 1)
        for subject, spawn in spawns(session).items():
            attempt([figure], subject, partial(_fetches, session, subject, spawn, count, figure))
        figures.append(figure)
    for count in counts:
        figure = Figure(f"read in process at a random offset, {count:,} segments", "µs", 2)
        figure.add(MILLSTREAM, _reads_in_process(session, count))
        figures.append(figure)
    return figures


def lookups_by_time(session: Session) -> list[Figure]:
    """Produce at a steady rate to a broker that was started on a log of many segments, alone and
    beside ListOffsets by time.
    """
    quick = session.options.quick
    count = QUICK_TIMED_SEGMENTS if quick else TIMED_SEGMENTS
    what = f"ListOffsets by time over {count:,} cold segments"
    alone = Figure(f"produce p99 without {what}", "ms", 2)
    beside = Figure(f"produce p99 beside {what}", "ms", 2)
    ratio = Figure(f"p99 beside {what} over that without", "×", 2, WORST_RATIO)
    figures = [alone, beside, ratio]
    subjects = spawns(session, {"log.flush.policy": "os"})
    directories = {subject: session.stage.directory / f"by time {subject}" for subject in subjects}
    for subject, spawn in subjects.items():
        work = partial(_fill_by_time, spawn, directories[subject], count)
        attempt(figures, subject, work)
    for _ in range(1 if quick else session.options.pairs):
        for subject, spawn in subjects.items():
            work = partial(_beside_lookups, session, spawn, directories[subject], subject, figures)
            attempt(figures, subject, work)
    for directory in directories.values():
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def _fill_by_time(spawn: Spawn, directory: Path, segments: int) -> None:
    with running(spawn, directory, keep=True) as node, connect_when_up(node) as admin:
        admin.create_topic("measured", 1)
        admin.create_topic(TIMED_TOPIC, 1, TIMED_SETTINGS)
        left = segments * TIMED_SEGMENT_BYTES // TIMED_BATCH_BYTES
        while left > 0:
            requests = min(left, FILL_REQUESTS_PER_RUN)
            left -= requests
            run_load(
                raw.ProduceSpec(
                    ports=(node.port,),
                    broker_pids=(node.pid,),
                    topic=TIMED_TOPIC,
                    requests=requests,
                    batch_bytes=TIMED_BATCH_BYTES,
                    record_bytes=RECORD_BYTES,
                )
            )


def _beside_lookups(
    session: Session, spawn: Spawn, directory: Path, subject: str, figures: list[Figure]
) -> None:
    alone, beside, ratio = figures
    seconds = QUICK_LATENCY_S if session.options.quick else LATENCY_S
    files = sorted((directory / "data" / f"{TIMED_TOPIC}-0").iterdir())
    first_ms, last_ms = _moments(files)
    leave_the_page_cache(files)
    with running(spawn, directory, keep=True) as node, connect_when_up(node) as admin:
        admin.wait_for_offsets("measured", admin.offsets("measured", 1) or [0])
        quiet_ms = _p99(steady_produce(admin, "measured", seconds=seconds))
        spec = LookupSpec(node.host, node.port, TIMED_TOPIC, first_ms, last_ms, LOOKUPS_PER_S)
        with time_lookups(spec):
            busy_ms = _p99(steady_produce(admin, "measured", seconds=seconds, warms_up=False))
    alone.add(subject, quiet_ms)
    beside.add(subject, busy_ms)
    ratio.add(subject, busy_ms / quiet_ms)


def _moments(files: list[Path]) -> tuple[int, int]:
    """Return the first and the last timestamp of a log's time indexes."""
    indexes = [path for path in files if path.suffix == ".timeindex" and path.stat().st_size]
    first, last = indexes[0].read_bytes()[:8], indexes[-1].read_bytes()[-12:-4]
    return int.from_bytes(first, "big"), int.from_bytes(last, "big")


def _p99(took_ms: list[float]) -> float:
    return statistics.quantiles(took_ms, n=100)[98]


def _fetches(session: Session, subject: str, spawn: Spawn, segments: int, figure: Figure) -> None:
    directory = session.stage.directory / f"lookup {subject}"
    count = QUICK_FETCHES if session.options.quick else FETCHES
    with running(spawn, directory) as node, connect_when_up(node) as admin:
        end = _fill(node, admin, segments)
        topic_id = admin.topic_id("looked-up")
        records_per_segment = end // segments
        # Files are opened once; what is measured is the look-up and not that.
        for offset in range(0, end, records_per_segment):
            admin.fetch(topic_id, offset=offset, max_bytes=1)
        chance = random.Random(5)
        took = []
        for _ in range(count):
            offset = chance.randrange(end)
            start = time.perf_counter()
            admin.fetch(topic_id, offset=offset, max_bytes=1)
            took.append((time.perf_counter() - start) * 1e6)
        figure.add(subject, statistics.median(took))


def _fill(node: Node, admin: Admin, segments: int) -> int:
    admin.create_topic("looked-up", 1, SETTINGS)
    spec = raw.ProduceSpec(
        ports=(node.port,),
        broker_pids=(node.pid,),
        topic="looked-up",
        requests=segments * BATCHES_PER_SEGMENT,
        batch_bytes=BATCH_BYTES,
        record_bytes=RECORD_BYTES,
    )
    return run_load(spec).records


def _reads_in_process(session: Session, segments: int) -> float:
    """Return the microseconds of `Log.read` for one batch, all files being open."""
    count = QUICK_LOOKUPS if session.options.quick else LOOKUPS
    data = batch_of_exactly(total_bytes=BATCH_BYTES, record_bytes=RECORD_BYTES).data
    with tempfile.TemporaryDirectory(dir=session.stage.directory) as root:
        environment = LogEnvironment(open_files=OpenFiles(raise_open_file_limit() // 2))
        directory = PartitionDirectory(root, "looked-up-0", TopicPartition("looked-up", 0))
        log = Log.create(environment, directory, TopicConfig(SETTINGS), topic_id=None, now_ms=0)
        for _ in range(segments * BATCHES_PER_SEGMENT):
            log.appender.append_as_leader(
                Batch(memoryview(bytearray(data))), leader_epoch=0, now_ms=0
            )
        end = log.log_end_offset
        log.offsets.update_high_watermark(end)
        chance = random.Random(5)
        offsets = [chance.randrange(end) for _ in range(count)]

        def read(offset: int) -> None:
            log.reader.read(offset, max_bytes=1, upper_bound_offset=end, min_one_batch=True)

        for offset in range(0, end, end // segments):
            read(offset)
        start = time.perf_counter()
        for offset in offsets:
            read(offset)
        return (time.perf_counter() - start) / count * 1e6
