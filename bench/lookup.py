"""What a fetch from a random offset costs when the log has ten segments, and when ten thousand."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from functools import partial

from bench.admin import Admin, connect_when_up
from bench.batches import batch_of_exactly
from bench.figures import Figure
from bench.load import raw
from bench.pairs import MILLSTREAM
from bench.peers.subject import Node
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns
from bench.stage import run_load
from millstream.config.topic import TopicConfig
from millstream.model.topic import TopicPartition
from millstream.records.batch import Batch
from millstream.storage.directory import PartitionDirectory
from millstream.storage.environment import LogEnvironment
from millstream.storage.files import raise_open_file_limit
from millstream.storage.log import Log
from millstream.storage.open_files import OpenFiles

SEGMENT_COUNTS, QUICK_SEGMENT_COUNTS = (10, 100, 1_000, 10_000), (10, 100)
BATCH_BYTES, RECORD_BYTES = 4_096, 500
BATCHES_PER_SEGMENT = 8
SETTINGS = {
    "internal.segment.bytes": str(BATCHES_PER_SEGMENT * BATCH_BYTES),
    "index.interval.bytes": str(BATCH_BYTES),
}
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
        place = PartitionDirectory(root, "looked-up-0", TopicPartition("looked-up", 0))
        log = Log.create(environment, place, TopicConfig(SETTINGS), topic_id=None, now_ms=0)
        for _ in range(segments * BATCHES_PER_SEGMENT):
            log.append_as_leader(Batch(memoryview(bytearray(data))), leader_epoch=0, now_ms=0)
        end = log.log_end_offset
        log.update_high_watermark(end)
        chance = random.Random(5)
        offsets = [chance.randrange(end) for _ in range(count)]

        def read(offset: int) -> None:
            log.read(offset, max_bytes=1, upper_bound_offset=end, min_one_batch=True)

        for offset in range(0, end, end // segments):
            read(offset)
        start = time.perf_counter()
        for offset in offsets:
            read(offset)
        return (time.perf_counter() - start) / count * 1e6
