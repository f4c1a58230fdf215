"""How long a broker takes to open thousands of partitions, and the memory they take (B4, B13)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from bench.admin import BrokerAnswerError, connect_when_up
from bench.batches import batch_of_records
from bench.figures import Figure
from bench.options import MB
from bench.process import resident_bytes
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns

PARTITIONS_PER_TOPIC = 1_000
TOPICS, QUICK_TOPICS = 10, 1
PARTITIONS_PER_REQUEST = 100
OPENINGS, QUICK_OPENINGS = 3, 1


def many_partitions(session: Session) -> list[Figure]:
    """Open ten thousand partitions, which has targets of its own."""
    quick = session.options.quick
    # The targets are for the full number.
    return open_partitions(
        session,
        QUICK_TOPICS if quick else TOPICS,
        seconds_at_most=None if quick else 10,
        megabytes_at_most=None if quick else 400,
    )


def open_partitions(
    session: Session,
    count: int,
    *,
    seconds_at_most: float | None = None,
    megabytes_at_most: float | None = None,
    refusals: Mapping[str, str] | None = None,
) -> list[Figure]:
    """Make `count` topics of 1,000 partitions once per subject, then start it on them several
    times. `refusals` says of a subject why it cannot have so many.
    """
    quick = session.options.quick
    topics = [f"many-{number}" for number in range(count)]
    what = f"{count * PARTITIONS_PER_TOPIC:,} partitions"
    opened = Figure(f"{what}: start until all answer", "s", 2, seconds_at_most)
    memory = Figure(f"{what}: resident memory", "MB", 0, megabytes_at_most)
    for figure in (opened, memory):
        figure.failures.update(refusals or {})

    def open_once(subject: str, spawn: Spawn) -> None:
        with running(spawn, _directory(session, subject), keep=True) as node:
            with connect_when_up(node) as admin:
                for topic in topics:
                    admin.wait_for_offsets(topic, [1] * PARTITIONS_PER_TOPIC)
            opened.add(subject, time.perf_counter() - node.spawned_at)
            memory.add(subject, resident_bytes(node.pid) / MB)

    subjects = spawns(session)
    for subject, spawn in subjects.items():
        directory = _directory(session, subject)
        attempt([opened, memory], subject, partial(_fill, spawn, directory, topics))
    for _ in range(QUICK_OPENINGS if quick else OPENINGS):
        for subject, spawn in subjects.items():
            attempt([opened, memory], subject, partial(open_once, subject, spawn))
    for subject in subjects:
        shutil.rmtree(_directory(session, subject), ignore_errors=True)
    return [opened, memory]


def _directory(session: Session, subject: str) -> Path:
    return session.stage.directory / f"partitions {subject}"


def _fill(spawn: Spawn, directory: Path, topics: list[str]) -> None:
    """Make the topics, put a record into each partition, and stop cleanly."""
    batch = batch_of_records(record_bytes=100, count=1).data
    with running(spawn, directory, keep=True) as node, connect_when_up(node) as admin:
        for topic in topics:
            admin.create_topic(topic, PARTITIONS_PER_TOPIC)
            for first in range(0, PARTITIONS_PER_TOPIC, PARTITIONS_PER_REQUEST):
                admin.produce(topic, batch, first=first, partitions=PARTITIONS_PER_REQUEST)
            if admin.offsets(topic, PARTITIONS_PER_TOPIC) != [1] * PARTITIONS_PER_TOPIC:
                raise BrokerAnswerError(f"not every partition of {topic} has its record")
