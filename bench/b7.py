"""B7: what stands still when a broker of three dies; how fast 1,000 partitions come and move."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.figures import Figure
from bench.pairs import KAFKA, MILLSTREAM
from bench.peers.subject import SubjectFailedError
from bench.peers.trio import Trio, kafka_trio, millstream_trio
from bench.session import Session
from bench.solo import attempt
from bench.tables import Section, figures_table

PARTITIONS, QUICK_PARTITIONS = 1_000, 100
WRITES_BEFORE_S, GAP_LIMIT_S = 1.0, 60.0
EVERY_WRITE_S = 0.005
TARGET_S = 2.0

CONDITIONS = (
    "three brokers, RF 3, min.insync.replicas=2, acks=all; Millstream with one ZooKeeper, Apache "
    "Kafka as three combined KRaft nodes with heaps of 512 MB; default settings",
    "partitions: from CreateTopics until one write to each was acknowledged; from kill -9 of a "
    "broker until one write to each was acknowledged again; C client",
    "gap: one write every 5 ms to one partition; the longest time between two acknowledgements "
    "around kill -9 of its leader; every acknowledged value is read back afterwards",
)

Start = Callable[[Path], AbstractContextManager[Trio]]


def run(session: Session) -> list[Section]:
    """Run B7 on clusters of its own."""
    count = QUICK_PARTITIONS if session.options.quick else PARTITIONS
    bound = None if session.options.quick else TARGET_S
    figures = [
        Figure(f"{count} partitions: created until all are written to", "s", 2, at_most=bound),
        Figure(
            f"{count} partitions: a broker killed until all are written to", "s", 2, at_most=bound
        ),
        Figure("longest gap after kill -9 of the leader", "s", 2, at_most=TARGET_S),
        Figure("acknowledged writes lost", "", 0, at_most=0),
    ]
    starts: dict[str, Start] = {}
    if session.stage.install is not None:
        starts[KAFKA] = partial(kafka_trio, session.stage.install)
    starts[MILLSTREAM] = millstream_trio
    rounds = 1 if session.options.quick else session.options.pairs
    for number in range(rounds):
        for subject, start in starts.items():
            directory = session.stage.directory / f"trio {subject} {number}"
            attempt(figures, subject, partial(_round, subject, start, directory, count, figures))
            shutil.rmtree(directory, ignore_errors=True)
    session.say_figures("b7", figures)
    return [figures_table("B7 · a broker of three dies", figures)]


def _round(subject: str, start: Start, directory: Path, count: int, figures: list[Figure]) -> None:
    created, moved, gap, lost = figures
    with start(directory) as nodes:
        everybody = ",".join(f"{node.host}:{node.port}" for node in nodes.values())
        create(everybody, "warm", 1)
        write_to_all(everybody, "warm", 1)
        begun = time.perf_counter()
        create(everybody, "many", count)
        write_to_all(everybody, "many", count)
        created.add(subject, time.perf_counter() - begun)
        seconds, acknowledged = gap_around(everybody, "warm", nodes)
        gap.add(subject, seconds)
        lost.add(subject, len(acknowledged - read_back(everybody, "warm")))
    shutil.rmtree(directory, ignore_errors=True)
    with start(directory) as nodes:
        everybody = ",".join(f"{node.host}:{node.port}" for node in nodes.values())
        create(everybody, "many", count)
        write_to_all(everybody, "many", count)
        nodes[leader_of(everybody, "many")].kill()
        begun = time.perf_counter()
        write_to_all(everybody, "many", count)
        moved.add(subject, time.perf_counter() - begun)


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create a topic; a cluster that has only now started may refuse for a while."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + GAP_LIMIT_S
    wanted = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    while True:
        try:
            admin.create_topics([wanted])[topic].result()
        except Exception as error:
            exists = "TOPIC_ALREADY_EXISTS" in str(error)
            if not exists and time.monotonic() > deadline:
                raise
            if exists:
                return
            time.sleep(0.05)
        else:
            return


def producer(bootstrap: str) -> Producer:
    """Return a producer with acks=all that gives up after a minute."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "topic.metadata.refresh.fast.interval.ms": 20,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "message.timeout.ms": int(GAP_LIMIT_S * 1000),
            "log_level": 0,
        }
    )


def write_to_all(bootstrap: str, topic: str, partitions: int) -> None:
    """Return once one write to each partition was acknowledged."""
    writer, failures = producer(bootstrap), []

    def told(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(str(error))

    for index in range(partitions):
        writer.produce(topic, b"x", partition=index, on_delivery=told)
    if writer.flush(GAP_LIMIT_S) or failures:
        raise SubjectFailedError(f"writes failed: {failures[:1]}")


def leader_of(bootstrap: str, topic: str) -> int:
    """Return who leads the first partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return int(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


def gap_around(bootstrap: str, topic: str, nodes: Trio) -> tuple[float, set[bytes]]:
    """Kill the leader under a trickle of writes; return the longest gap and what was acked."""
    writer = producer(bootstrap)
    times: list[float] = []
    acknowledged: set[bytes] = set()

    def told(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            times.append(time.perf_counter())
            acknowledged.add(bytes(value))

    def trickle(until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + GAP_LIMIT_S
        while not until():
            if time.monotonic() > deadline:
                raise SubjectFailedError(f"nothing was acknowledged for {GAP_LIMIT_S:g} s")
            name = b"%d" % time.perf_counter_ns()
            writer.produce(topic, name, partition=0, on_delivery=told)
            writer.poll(EVERY_WRITE_S)

    begun = time.perf_counter()
    trickle(lambda: time.perf_counter() - begun > WRITES_BEFORE_S)
    nodes[leader_of(bootstrap, topic)].kill()
    killed = time.perf_counter()
    trickle(lambda: bool(times) and times[-1] > killed + WRITES_BEFORE_S)
    writer.flush(GAP_LIMIT_S)
    around = [each for each in times if each > begun + WRITES_BEFORE_S / 2]
    gaps = [later - earlier for earlier, later in pairwise(around)]
    return max(gaps), acknowledged


def read_back(bootstrap: str, topic: str) -> set[bytes]:
    """Return every value in the first partition."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "b7",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    place = TopicPartition(topic, 0, 0)
    reader.assign([place])
    found: set[bytes] = set()
    try:
        _, end = reader.get_watermark_offsets(place, timeout=30)
        last, deadline = -1, time.monotonic() + GAP_LIMIT_S
        while last < end - 1:
            if time.monotonic() > deadline:
                raise SubjectFailedError(f"read up to {last} of {end}")
            for message in reader.consume(10_000, timeout=0.2):
                if message.error() is None:
                    found.add(bytes(message.value() or b""))
                    last = max(last, message.offset() or 0)
    finally:
        reader.close()
    return found
