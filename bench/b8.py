"""B8: the largest gap in delivery while members of a group join and leave."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

from bench.admin import connect_when_up
from bench.figures import Figure
from bench.load.members import PROTOCOLS
from bench.pairs import KAFKA, MILLSTREAM
from bench.peers.subject import SubjectFailedError
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns
from bench.tables import Section, figures_table

PARTITIONS = 100
PER_SECOND, QUICK_PER_SECOND = 2_000, 500
CHANGES, QUICK_CHANGES = 3, 1
LOAD_TIMEOUT_S = 600.0
CONDITIONS = (
    f"one broker with default settings, {PARTITIONS} partitions, {PER_SECOND} records a second to "
    "all of them in turn; three members of this client, a fourth joins and leaves",
    "the largest delay from sending a record to its first delivery, of all that were delivered "
    "from the change until every partition has its owner and has caught up; medians (95th "
    "percentile)",
    "eager: range; cooperative: cooperative-sticky, both with heartbeats every 3 s; KIP-848: "
    "assigned by the broker, which asks for heartbeats every 5 s",
)


def run(session: Session) -> list[Section]:
    """Run the protocols that `--only` leaves, on nodes of their own."""
    figures: list[Figure] = []
    for protocol in PROTOCOLS:
        if session.options.only not in protocol:
            continue
        joins = Figure(f"{protocol}: a member joins", "ms")
        leaves = Figure(f"{protocol}: a member leaves", "ms")
        found = [joins, leaves]
        for number in range(1 if session.options.quick else session.options.pairs):
            for subject, spawn in spawns(session).items():
                sample = partial(_sample, session, subject, spawn, protocol, number, found)
                attempt(found, subject, sample)
        for figure in found:
            kafka = figure.median(KAFKA)
            if kafka is not None and figure.median(MILLSTREAM) is not None:
                figure.at_most = kafka
        session.say_figures(protocol, found)
        figures += found
    return [figures_table("B8 · gaps in delivery as members come and go", figures)]


def _sample(
    session: Session,
    subject: str,
    spawn: Spawn,
    protocol: str,
    number: int,
    figures: list[Figure],
) -> None:
    joins, leaves = figures
    quick = session.options.quick
    directory = session.stage.directory / f"members {subject} {protocol} {number}"
    topic = f"members-{number}"
    with running(spawn, directory) as node:
        with connect_when_up(node) as admin:
            admin.create_topic(topic, PARTITIONS)
        spec = {
            "bootstrap": f"{node.host}:{node.port}",
            "topic": topic,
            "partitions": PARTITIONS,
            "protocol": protocol,
            "per_second": QUICK_PER_SECOND if quick else PER_SECOND,
            "changes": QUICK_CHANGES if quick else CHANGES,
        }
        answer = subprocess.run(
            [sys.executable, "-m", "bench.load.members", json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=False,
        )
    if answer.returncode != 0:
        last_line = answer.stderr.strip().splitlines()[-1:]
        raise SubjectFailedError(f"load failed: {' '.join(last_line)}")
    measured = json.loads(answer.stdout)
    for figure, values in ((joins, measured["joins"]), (leaves, measured["leaves"])):
        for value in values:
            figure.add(subject, value)
    session.say(
        f"{subject}, {protocol}: joins {_words(measured['joins'])}, "
        f"leaves {_words(measured['leaves'])}, {measured['repeated']} records twice"
    )


def _words(values: list[float]) -> str:
    return " ".join(f"{value:.0f}" for value in values) + " ms"
