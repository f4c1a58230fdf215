"""How fast a killed broker reads its log again, against `cat` of the same files; how long it takes
to start with what it noted to be on disk.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from functools import partial
from pathlib import Path

from bench.admin import connect_when_up
from bench.figures import Figure
from bench.load import raw
from bench.options import MB
from bench.peers.subject import Node, SubjectFailedError
from bench.process import bytes_read
from bench.session import Session
from bench.solo import Spawn, attempt, spawns
from bench.stage import run_load

PARTITIONS = 4
BATCH_BYTES, RECORD_BYTES = 16_384, 1_000
TOPIC = "recovered"
QUICK_ROUNDS = 1
FILL_BYTES_PER_RUN = 2_000_000_000
# A Kafka that was killed waits until its own last session has ended, nine seconds by default.
SETTINGS = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
CHECKPOINT_S = 5
KILL_SETTINGS = {
    **SETTINGS,
    # What a broker of a cluster has by default: nothing waits for the disk.
    "log.flush.policy": "os",
    "log.flush.offset.checkpoint.interval.ms": str(CHECKPOINT_S * 1000),
}
WRITTEN_ON_BYTES = 100_000_000
MOST_SECONDS = 10.0
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def recovery(session: Session) -> list[Figure]:
    """Fill a log once per subject, then kill the broker and start it again, several times."""
    options = session.options
    total_bytes = int(options.scaled(int(options.log_gb * 1_000_000_000)))
    what = f"recovery of {total_bytes / 1e9:g} GB"
    recovered = Figure(f"{what}: start until every end is known", "MB/s")
    read = Figure("cat of the same files", "MB/s")
    ratio = Figure("recovery's time over that of cat", "×", 2)
    figures = [recovered, read, ratio]
    for subject, spawn in spawns(session, SETTINGS).items():
        directory = session.stage.directory / f"recovery {subject}"
        work = partial(_rounds, session, subject, spawn, directory, total_bytes, figures)
        attempt(figures, subject, work)
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def kills(session: Session) -> list[Figure]:
    """Fill a log once per subject; write on, kill the broker and start it again, several times."""
    options = session.options
    total_bytes = int(options.scaled(int(options.log_gb * 1_000_000_000)))
    what = f"broker with {total_bytes / 1e9:g} GB that was killed"
    started = Figure(f"{what}: start until every end is known", "s", 2, MOST_SECONDS)
    read = Figure(f"{what}: of the log that the start has read", "%", 1)
    figures = [started, read]
    for subject, spawn in spawns(session, KILL_SETTINGS).items():
        directory = session.stage.directory / f"killed {subject}"
        work = partial(_kills, session, subject, spawn, directory, total_bytes, figures)
        attempt(figures, subject, work)
        shutil.rmtree(directory, ignore_errors=True)
    return figures


def _kills(
    session: Session,
    subject: str,
    spawn: Spawn,
    directory: Path,
    total_bytes: int,
    figures: list[Figure],
) -> None:
    started, read = figures
    node = spawn(directory)
    try:
        _fill(node, total_bytes)
        for _ in range(QUICK_ROUNDS if session.options.quick else session.options.pairs):
            # Recovery points are noted every so often; what is written after that is recovered.
            time.sleep(2 * CHECKPOINT_S)
            ends = _write(node, WRITTEN_ON_BYTES)
            node.kill()
            logs = sorted(directory.glob(f"data/{TOPIC}-*/*.log"))
            stored = sum(path.stat().st_size for path in logs)
            leave_the_page_cache(logs)
            node = spawn(directory)
            with connect_when_up(node) as admin:
                admin.wait_for_offsets(TOPIC, ends)
            started.add(subject, time.perf_counter() - node.spawned_at)
            read.add(subject, bytes_read(node.pid) / stored * 100)
    finally:
        node.stop()


def _rounds(
    session: Session,
    subject: str,
    spawn: Spawn,
    directory: Path,
    total_bytes: int,
    figures: list[Figure],
) -> None:
    recovered, read, ratio = figures
    node = spawn(directory)
    try:
        ends = _fill(node, total_bytes)
        for _ in range(QUICK_ROUNDS if session.options.quick else session.options.pairs):
            node.kill()
            # Both brokers note while they run what is on disk for certain, and skip it.
            (directory / "data" / RECOVERY_POINTS).unlink(missing_ok=True)
            logs = sorted(directory.glob(f"data/{TOPIC}-*/*.log"))
            stored = sum(path.stat().st_size for path in logs)
            leave_the_page_cache(logs)
            seconds_of_cat = _cat(logs)
            leave_the_page_cache(logs)
            node = spawn(directory)
            with connect_when_up(node) as admin:
                admin.wait_for_offsets(TOPIC, ends)
            seconds = time.perf_counter() - node.spawned_at
            recovered.add(subject, stored / seconds / MB)
            read.add(subject, stored / seconds_of_cat / MB)
            ratio.add(subject, seconds / seconds_of_cat)
    finally:
        node.stop()


def _fill(node: Node, total_bytes: int) -> list[int]:
    """Make the topic and its log; return where its partitions end."""
    with connect_when_up(node) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
    return _write(node, total_bytes)


def _write(node: Node, total_bytes: int) -> list[int]:
    """Write so many bytes more and return where the partitions end."""
    with connect_when_up(node) as admin:
        left = total_bytes
        while left > 0:
            spec = raw.ProduceSpec(
                ports=(node.port,) * PARTITIONS,
                broker_pids=(node.pid,),
                topic=TOPIC,
                requests=min(left, FILL_BYTES_PER_RUN) // BATCH_BYTES // PARTITIONS + 1,
                batch_bytes=BATCH_BYTES,
                record_bytes=RECORD_BYTES,
            )
            left -= run_load(spec).moved_bytes
        ends = admin.offsets(TOPIC, PARTITIONS)
    if ends is None or not all(ends):
        raise SubjectFailedError(f"the log that was filled ends at {ends}")
    return ends


def leave_the_page_cache(paths: list[Path]) -> None:
    """Write the files back and drop them from memory, so that a disk has to read them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _cat(paths: list[Path]) -> float:
    start = time.perf_counter()
    subprocess.run(["cat", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start
