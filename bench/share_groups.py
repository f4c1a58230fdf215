"""Share groups: how long a group takes for the records of a topic, fetching and accepting."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from typing import Final

from bench.admin import connect_when_up
from bench.figures import Figure
from bench.pairs import KAFKA, MILLSTREAM
from bench.peers.subject import SubjectFailedError
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns
from bench.tables import Section, figures_table

RECORDS, QUICK_RECORDS = 200_000, 5_000
ROUNDS = 3
LOAD_TIMEOUT_S = 900.0
ROWS: Final = {
    "1 member, 1 partition, 1-KB records": (1, 1, 1_000),
    "4 members, 1 partition, 1-KB records": (4, 1, 1_000),
    "4 members, 8 partitions, 100-byte records": (4, 8, 100),
}
"""Members, partitions, and bytes of a record."""

SETTINGS = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
CONDITIONS = (
    f"one broker, {RECORDS:,} records that were produced before; raw ShareFetch requests of at "
    "most 500 records, each with the acknowledgements of the one before; members are threads of "
    "one process, which is the same for both",
    f"milliseconds for 1,000 records; {ROUNDS} groups one after the other on each broker, of "
    "which the first is not counted; medians (95th percentile)",
)


def run(session: Session) -> list[Section]:
    """Run the rows that `--only` leaves, on nodes of their own."""
    figures: list[Figure] = []
    for name, shape in ROWS.items():
        if session.options.only not in name:
            continue
        figure = Figure(name, "ms", digits=2)
        for number in range(1 if session.options.quick else session.options.pairs):
            for subject, spawn in spawns(session, SETTINGS).items():
                sample = partial(_sample, session, subject, spawn, shape, number, figure)
                attempt([figure], subject, sample)
        kafka = figure.median(KAFKA)
        if kafka is not None and figure.median(MILLSTREAM) is not None:
            figure.at_most = kafka
        session.say_figures(name, [figure])
        figures.append(figure)
    return [figures_table("B15 · share groups, time for 1,000 records", figures)]


def _sample(
    session: Session,
    subject: str,
    spawn: Spawn,
    shape: tuple[int, int, int],
    number: int,
    figure: Figure,
) -> None:
    members, partitions, size = shape
    records = QUICK_RECORDS if session.options.quick else RECORDS
    directory = session.stage.directory / f"share {subject} {members} {partitions} {number}"
    with running(spawn, directory) as node:
        with connect_when_up(node) as admin:
            admin.create_topic("work", partitions)
        spec = {
            "host": node.host,
            "port": node.port,
            "topic": "work",
            "partitions": partitions,
            "members": members,
            "size": size,
            "records": records,
            "rounds": ROUNDS,
        }
        answer = subprocess.run(
            [sys.executable, "-m", "bench.load.share_members", json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=False,
        )
    if answer.returncode != 0:
        last_line = answer.stderr.strip().splitlines()[-1:]
        raise SubjectFailedError(f"load failed: {' '.join(last_line)}")
    for seconds in json.loads(answer.stdout)["seconds"][1:]:
        figure.add(subject, seconds * 1e6 / records)
