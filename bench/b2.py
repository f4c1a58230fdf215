"""B2: produce to three brokers, every record on all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from bench.cluster import (
    ClientProduce,
    Cluster,
    RawProduce,
    client_produce,
    raw_produce,
)
from bench.load.report import LoadReport
from bench.metrics import CPU_PER_MB, CPU_PER_REQUEST, MB_PER_S, RECORDS_PER_S, REQUESTS_PER_S
from bench.options import MB
from bench.pairs import KAFKA, MILLSTREAM, Measure, Row, Target
from bench.peers.kafka import JVM_FLAGS
from bench.peers.trio import Trio, kafka_trio, millstream_trio
from bench.session import Session
from bench.stage import BROKER_SETTINGS, Stage
from bench.tables import Section, cpu_table, throughput_table

FASTER = Target(KAFKA, 1.5)
TWICE = Target(KAFKA, 2.0)
HALF_THE_CPU = Target(KAFKA, 0.5, at_most=True)

CONDITIONS = (
    "three brokers, RF 3, min.insync.replicas=2, plaintext, no compression, no keys; Millstream "
    "with one ZooKeeper, Apache Kafka as three combined KRaft nodes with heaps of 1 GB",
    "both leave writing back to the system, which is their default for replicated topics",
    "CPU: user and system time of all three brokers, until every replica has every record; "
    "throughput: until the last acknowledgement",
    "raw load: batches encoded beforehand, three partitions led by one broker each, a connection "
    "to each leader with up to 5 requests in flight, one process",
    "C client: librdkafka, one producer, 6 partitions, linger.ms=5, values of random bytes, "
    "otherwise its defaults",
    "all brokers stay up for the whole run and the two kinds take turns; medians, ratios pair by "
    "pair; everything shares the machine, so throughput is CPU time turned round",
)

Measured = Callable[[Cluster], LoadReport]
Start = Callable[[Path], AbstractContextManager[Trio]]


def run(session: Session) -> list[Section]:
    """Run the rows of B2 on clusters of its own."""
    stage = session.stage
    with ExitStack() as stack:
        clusters = _start(session, stack)
        results = session.run(_rows(stage, clusters), warm_up=partial(_warm_up, session, clusters))
    return [
        throughput_table("B2 · three brokers", results),
        cpu_table("B2 · CPU time of three brokers", results),
    ]


def _start(session: Session, stack: ExitStack) -> dict[str, Cluster | Exception]:
    """Start what can be started; what cannot is there with its reason."""
    stage = session.stage
    starts: dict[str, Start] = {}
    if stage.install is not None:
        starts[KAFKA] = partial(
            kafka_trio, stage.install, settings=BROKER_SETTINGS, jvm_flags=JVM_FLAGS
        )
    starts[MILLSTREAM] = partial(millstream_trio, settings=BROKER_SETTINGS)
    clusters: dict[str, Cluster | Exception] = {}
    for subject, start in starts.items():
        try:
            clusters[subject] = Cluster(
                stack.enter_context(start(stage.directory / f"trio {subject}"))
            )
        except Exception as error:
            clusters[subject] = error
    return clusters


def _rows(stage: Stage, clusters: dict[str, Cluster | Exception]) -> list[Row]:
    return [*_raw_rows(stage, clusters), *_client_rows(stage, clusters)]


def _raw_rows(stage: Stage, clusters: dict[str, Cluster | Exception]) -> list[Row]:
    sizes = (
        # batch bytes, name, requests
        (0, "one 100-byte record", 45_000),
        (17_000, "17 KB", 18_000),
        (110_000, "110 KB", 4_500),
        (930_000, "930 KB", 540),
    )
    rows = []
    for batch_bytes, name, requests in sizes:
        for acks, shown in ((-1, "all"), (1, "1")):
            record_bytes = 1_000 if batch_bytes else 100
            job = RawProduce(batch_bytes, record_bytes, stage.options.scaled(requests), acks)
            rows.append(
                Row(
                    name=f"raw produce {name}, acks={shown}",
                    measures=_on(clusters, partial(_raw, stage, job)),
                    throughput=MB_PER_S if batch_bytes else REQUESTS_PER_S,
                    cpu=CPU_PER_MB if batch_bytes else CPU_PER_REQUEST,
                    targets=(TWICE if acks == -1 else FASTER,),
                    cpu_targets=(HALF_THE_CPU,),
                )
            )
    return rows


def _client_rows(stage: Stage, clusters: dict[str, Cluster | Exception]) -> list[Row]:
    rows = []
    for record_bytes, name, records in ((100, "100-byte", 2_000_000), (1_000, "1-KB", 400_000)):
        for acks in ("all", "1"):
            job = ClientProduce(stage.options.scaled(records), record_bytes, acks)
            rows.append(
                Row(
                    name=f"C client, {name} records, acks={acks}",
                    measures=_on(clusters, partial(_client, stage, job)),
                    throughput=RECORDS_PER_S if record_bytes == 100 else MB_PER_S,
                    cpu=CPU_PER_MB,
                    targets=(FASTER,),
                    cpu_targets=(HALF_THE_CPU,),
                )
            )
    return rows


def _on(clusters: dict[str, Cluster | Exception], job: Measured) -> dict[str, Measure]:
    return {subject: partial(_measured, job, cluster) for subject, cluster in clusters.items()}


def _measured(job: Measured, cluster: Cluster | Exception) -> LoadReport:
    if isinstance(cluster, Exception):
        raise cluster
    return job(cluster)


def _raw(stage: Stage, job: RawProduce, cluster: Cluster) -> LoadReport:
    return raw_produce(stage, cluster, job)


def _client(stage: Stage, job: ClientProduce, cluster: Cluster) -> LoadReport:
    return client_produce(stage, cluster, job)


def _warm_up(session: Session, clusters: dict[str, Cluster | Exception]) -> None:
    """Let every kind of row pass once, and each JVM compile what it will compile."""
    stage = session.stage
    scaled = stage.options.scaled
    jobs = (
        RawProduce(110_000, 1_000, scaled(9_000), -1),
        RawProduce(17_000, 1_000, scaled(30_000), 1),
        RawProduce(0, 100, scaled(60_000), -1),
    )
    for subject, cluster in clusters.items():
        if isinstance(cluster, Exception):
            continue
        try:
            moved = sum(raw_produce(stage, cluster, job).moved_bytes for job in jobs)
            client = ClientProduce(scaled(400_000), 1_000, "all")
            moved += client_produce(stage, cluster, client).moved_bytes
        except Exception as error:
            # Its rows will say what fails; the other subject still has its own.
            session.say(f"{subject} did not warm up: {error}")
        else:
            session.say(f"{subject} warmed up with {moved / MB:.0f} MB")
