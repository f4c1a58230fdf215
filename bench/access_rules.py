"""How long a broker with many rules takes to start, and what a change of rules does to others."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import wire
from bench.admin import Admin, BrokerAnswerError, connect_when_up
from bench.batches import batch_of_records
from bench.compaction import steady_produce
from bench.figures import Figure
from bench.guarded import AUTHORIZING, rules_of_others
from bench.idle_connections import connect
from bench.options import MB
from bench.peers.subject import Node, SubjectFailedError
from bench.process import resident_bytes
from bench.session import Session
from bench.solo import Spawn, attempt, running, spawns
from millstream import client
from millstream.model.acl import Acl, AclOperation, AclResource

SETTINGS = {"log.flush.policy": "os", **AUTHORIZING}
RULES, QUICK_RULES = 100_000, 2_000
RULES_AT_ONCE = 2_000
CONNECTIONS, QUICK_CONNECTIONS = 10_000, 200
CHANGES_S, QUICK_CHANGES_S = 10.0, 2.0
SAMPLES, QUICK_SAMPLES = 3, 1
READY_TIMEOUT_S = 300.0
MEASURED, CHANGED = "measured", "changed"


def loaded_rules(session: Session) -> list[Figure]:
    """Start a broker without rules, make many, and start it again."""
    count = QUICK_RULES if session.options.quick else RULES
    bare = Figure("start with StandardAuthorizer and one rule", "s", 2)
    ruled = Figure(f"start with {count:,} rules", "s", 2)
    more = Figure(f"{count:,} rules: memory", "MB")
    made = Figure(f"{count:,} rules: made, {RULES_AT_ONCE:,} in a request", "s", 1)
    figures = [bare, ruled, more, made]
    for _ in range(QUICK_SAMPLES if session.options.quick else SAMPLES):
        for subject, spawn in spawns(session, SETTINGS).items():
            attempt(figures, subject, partial(_load, session, subject, spawn, count, figures))
    return figures


def _load(session: Session, subject: str, spawn: Spawn, count: int, figures: list[Figure]) -> None:
    bare, ruled, more, made = figures
    directory = session.stage.directory / f"rules {subject}"
    try:
        with running(spawn, directory, keep=True) as node, connect_when_up(node) as admin:
            admin.create_topic(MEASURED, 1)
            _make_rules(node, [_allow(MEASURED)])
        seconds, before = _start(spawn, directory)
        bare.add(subject, seconds)
        with running(spawn, directory, keep=True) as node, connect_when_up(node):
            start = time.perf_counter()
            _make_rules(node, rules_of_others(count))
            made.add(subject, time.perf_counter() - start)
        seconds, after = _start(spawn, directory)
        ruled.add(subject, seconds)
        more.add(subject, (after - before) / MB)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _start(spawn: Spawn, directory: Path) -> tuple[float, int]:
    """Return how long it took until a record was appended, and the resident set."""
    batch = batch_of_records(record_bytes=100, count=1).data
    with running(spawn, directory, keep=True) as node, connect_when_up(node) as admin:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not _is_produced(admin, MEASURED, batch):
            if time.monotonic() > deadline:
                raise SubjectFailedError("no record was appended")
        return time.perf_counter() - node.spawned_at, resident_bytes(node.pid)


def _is_produced(admin: Admin, topic: str, batch: bytes) -> bool:
    try:
        admin.produce(topic, batch, acks=1)
    except BrokerAnswerError:
        return False
    return True


def _make_rules(node: Node, rules: list[Acl]) -> None:
    with client.Admin(bootstrap_servers=f"{node.host}:{node.port}") as admin:
        for first in range(0, len(rules), RULES_AT_ONCE):
            admin.create_acls(rules[first : first + RULES_AT_ONCE]).get_all()


def _allow(topic: str) -> Acl:
    return Acl(
        resource=AclResource.TOPIC,
        name=topic,
        principal="User:ANONYMOUS",
        operation=AclOperation.ALL,
    )


def rule_changes(session: Session) -> list[Figure]:
    """Change rules on a broker with many connections while another client produces."""
    quick = session.options.quick
    count = QUICK_CONNECTIONS if quick else CONNECTIONS
    what = f"{count:,} connections"
    holds = Figure(f"{what}: from a change of a rule until it holds", "ms", 2)
    alone = Figure(f"{what}: produce p99 of another client, no changes", "ms", 2)
    beside = Figure(f"{what}: produce p99 of another client, beside changes", "ms", 2)
    figures = [holds, alone, beside]
    for _ in range(QUICK_SAMPLES if quick else SAMPLES):
        for subject, spawn in spawns(session, SETTINGS).items():
            attempt(figures, subject, partial(_change, session, subject, spawn, count, figures))
    return figures


def _change(
    session: Session, subject: str, spawn: Spawn, count: int, figures: list[Figure]
) -> None:
    holds, alone, beside = figures
    seconds = QUICK_CHANGES_S if session.options.quick else CHANGES_S
    directory = session.stage.directory / f"changes {subject}"
    with running(spawn, directory) as node, connect_when_up(node) as admin, ExitStack() as stack:
        for topic in (MEASURED, CHANGED):
            admin.create_topic(topic, 1)
        _make_rules(node, [_allow(MEASURED), _allow(CHANGED)])
        _make_rules(node, rules_of_others(1_000))
        connect(node, count, stack, wire.metadata_request(CHANGED))
        alone.add(subject, _p99(steady_produce(admin, MEASURED, seconds=seconds)))
        command = [sys.executable, "-m", "bench.load.rule_changes"]
        words = [node.host, str(node.port), CHANGED, str(seconds)]
        with subprocess.Popen([*command, *words], stdout=subprocess.PIPE, text=True) as changes:
            assert changes.stdout is not None
            changes.stdout.readline()  # it begins
            took_ms = steady_produce(admin, MEASURED, seconds=seconds, warms_up=False)
            answer, _ = changes.communicate(timeout=READY_TIMEOUT_S)
        if changes.returncode != 0:
            raise SubjectFailedError("the changes failed")
        beside.add(subject, _p99(took_ms))
        for value in json.loads(answer):
            holds.add(subject, value)


def _p99(values: list[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]
