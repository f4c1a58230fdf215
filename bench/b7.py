"""B7: what stands still when a broker of three fails; how fast 1,000 partitions come and move."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, Message, Producer

from bench.failures import LONG_PAUSE_S, PARTITIONS, TOPIC, Failure, Seen, observe
from bench.figures import Figure
from bench.pairs import KAFKA, MILLSTREAM
from bench.peers.cluster_view import ClusterView
from bench.peers.subject import SubjectFailedError
from bench.peers.trio import Trio, addresses, bring_back, kafka_trio, millstream_trio
from bench.session import Session
from bench.solo import attempt
from bench.tables import Section, figures_table

MANY, QUICK_MANY = 1_000, 100
WRITE_LIMIT_S = 60.0
TARGET_S = 2.0
LOOPS = 2
"""Failures of each kind in a round."""
KILLS = (Failure.LEADER, Failure.CONTROLLER, Failure.BOTH)

CONDITIONS = (
    "three brokers, RF 3, min.insync.replicas=2, acks=all; Millstream with one ZooKeeper, Apache "
    "Kafka as three combined KRaft nodes with heaps of 512 MB; default settings",
    "partitions: led and in sync as Metadata tells; written to: one acknowledged write to each; "
    "killed: a broker that leads 1,000 others and is not the controller; C client",
    "failures: one write every 5 ms to one partition, one in five to another, or one commit after "
    "the other, by the C client with its defaults; until the first answer to what was asked after "
    "the failure, and the longest time between two answers, of the one partition; median, and the "
    "largest in parentheses",
    f"sessions are 9 s by default on both sides, so only the pause of {LONG_PAUSE_S:g} s may "
    "elect; every acknowledged value is read back afterwards",
)

Start = Callable[[Path], AbstractContextManager[Trio]]


def run(session: Session) -> list[Section]:
    """Run B7 on clusters of its own."""
    starts: dict[str, Start] = {}
    if session.stage.install is not None:
        starts[KAFKA] = partial(kafka_trio, session.stage.install)
    starts[MILLSTREAM] = millstream_trio
    many = Many(session)
    failures = Failures(session)
    for number in range(1 if session.options.quick else session.options.pairs):
        for part in (many, failures):
            for subject, start in starts.items():
                directory = session.stage.directory / f"trio {subject} {number}"
                attempt(part.figures, subject, partial(part.measure, subject, start, directory))
                shutil.rmtree(directory, ignore_errors=True)
    sections = []
    for name, part in (("1,000 partitions", many), ("a broker of three fails", failures)):
        session.say_figures(f"b7: {name}", part.figures)
        if part.figures:
            sections.append(figures_table(f"B7 · {name}", part.figures))
    return sections


class Many:
    """A thousand partitions: created, failed over, restarted, deleted."""

    def __init__(self, session: Session) -> None:
        quick = session.options.quick
        self.count = QUICK_MANY if quick else MANY
        bound = None if quick else TARGET_S

        def figure(what: str, at_most: float | None = None) -> Figure:
            return Figure(f"{self.count} partitions: {what}", "s", 2, at_most=at_most)

        self._created = figure("created until led and in sync", bound)
        self._written = figure("created until all are written to", bound)
        self._elected = figure("the broker that leads all killed until they are led again", bound)
        self._moved = figure("the broker that leads all killed until they are written to", bound)
        self._back = figure("that broker back until all are in sync")
        self._restarted = figure("all brokers stopped and started until all are in sync")
        self._deleted = figure("deleted")
        everything = (
            self._created,
            self._written,
            self._elected,
            self._moved,
            self._back,
            self._restarted,
            self._deleted,
        )
        self.figures = _chosen(everything, session.options.only)

    def measure(self, subject: str, start: Start, directory: Path) -> None:
        """Go through it once on a fresh cluster."""
        if not self.figures:
            return
        with start(directory) as nodes:
            view, bootstrap = ClusterView(nodes), addresses(nodes)
            view.create("warm", 3)
            view.wait_until(lambda: view.is_whole("warm"), "a first topic is in sync")
            write_to_all(bootstrap, "warm", 3)
            begun = time.perf_counter()
            view.create("many", self.count)
            view.wait_until(lambda: view.is_whole("many"), "all partitions are in sync")
            self._created.add(subject, time.perf_counter() - begun)
            write_to_all(bootstrap, "many", self.count)
            self._written.add(subject, time.perf_counter() - begun)
            self._lose_one(subject, view)
            self._restart(subject, view)
            begun = time.perf_counter()
            view.delete("many")
            self._deleted.add(subject, time.perf_counter() - begun)

    def _lose_one(self, subject: str, view: ClusterView) -> None:
        controller = view.controller()
        victim = next(each for each in view.nodes if each != controller)
        view.create("led", self.count, led_by=victim)
        view.wait_until(lambda: view.is_whole("led"), "all partitions are in sync")
        write_to_all(addresses(view.nodes), "led", self.count)
        begun = time.perf_counter()
        view.nodes[victim].kill()
        view.wait_until(
            lambda: not {-1, victim} & set(view.leaders("led").values()), "all are led again"
        )
        self._elected.add(subject, time.perf_counter() - begun)
        write_to_all(addresses(view.nodes), "led", self.count)
        self._moved.add(subject, time.perf_counter() - begun)
        begun = time.perf_counter()
        bring_back(view.nodes[victim])
        view.wait_until(lambda: view.is_whole("led"), "all partitions are in sync again")
        self._back.add(subject, time.perf_counter() - begun)
        view.wait_until(lambda: view.is_whole("many"), "the others are in sync again")
        view.delete("led")

    def _restart(self, subject: str, view: ClusterView) -> None:
        begun = time.perf_counter()
        for node in view.nodes.values():
            node.stop()
        bring_back(*view.nodes.values())
        view.wait_until(lambda: view.is_whole("many"), "all partitions are in sync again")
        self._restarted.add(subject, time.perf_counter() - begun)


class Failures:
    """Every way to fail, some loops of each in a round."""

    def __init__(self, session: Session) -> None:
        quick = session.options.quick
        self._loops = 1 if quick else LOOPS
        self._say = session.say
        self._seen: dict[Failure, tuple[Figure, Figure]] = {}
        for failure in Failure:
            bound = TARGET_S if failure in KILLS else None
            first = Figure(f"{failure.value}: first answer", "s", 2, worst=True)
            gap = Figure(f"{failure.value}: longest gap", "s", 2, at_most=bound, worst=True)
            self._seen[failure] = first, gap
        self._elections = Figure(
            f"elections while a {Failure.SHORT_PAUSE.value}", "", 0, at_most=0, worst=True
        )
        self._lost = Figure("acknowledged and lost, in all", "", 0, at_most=0, worst=True)
        everything = [each for pair in self._seen.values() for each in pair]
        self.figures = _chosen(everything, session.options.only)
        if self.figures:
            self.figures += [self._elections, self._lost]

    def measure(self, subject: str, start: Start, directory: Path) -> None:
        """Go through all failures on a fresh cluster."""
        wanted = [each for each in Failure if self._seen[each][1] in self.figures]
        if not wanted:
            return
        with start(directory) as nodes:
            view = ClusterView(nodes)
            view.create(TOPIC, PARTITIONS)
            view.coordinator("warm")
            for _ in range(self._loops):
                for failure in wanted:
                    self._take(subject, failure, observe(view, failure))

    def _take(self, subject: str, failure: Failure, seen: Seen) -> None:
        first, gap = self._seen[failure]
        first.add(subject, seen.first_s)
        gap.add(subject, seen.gap_s)
        self._lost.add(subject, seen.lost)
        if failure is Failure.SHORT_PAUSE:
            self._elections.add(subject, seen.elections)
        self._say(f"{subject}: {failure.value}: {seen.first_s:.2f} s, gap {seen.gap_s:.2f} s")


def _chosen(figures: Iterable[Figure], only: str) -> list[Figure]:
    """Return the figures whose names contain what the command line asks for."""
    return [each for each in figures if only in each.name]


def write_to_all(bootstrap: str, topic: str, partitions: int) -> None:
    """Return once one write to each partition was acknowledged."""
    writer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.timeout.ms": int(WRITE_LIMIT_S * 1000),
            "log_level": 0,
        }
    )
    failures: list[str] = []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    for index in range(partitions):
        writer.produce(topic, b"x", partition=index, on_delivery=told)
    if writer.flush(WRITE_LIMIT_S) or failures:
        raise SubjectFailedError(f"writes failed: {failures[:1]}")
