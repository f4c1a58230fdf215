"""The pieces of work that rows are made of: each sets up, runs a load, checks, cleans up.

A check that fails raises `SubjectFailedError`: a subject that loses or refuses a record has no
figure. Topics of produce runs live for one run, so at most its bytes are ever dirty.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench import wire
from bench.admin import Admin
from bench.load import c_client, raw
from bench.load.report import LoadReport
from bench.peers import raw_limit
from bench.peers.subject import SubjectFailedError
from bench.stage import PRODUCE_TOPIC, Broker, Stage, run_load

FETCH_BATCHES = 8_192  # of 16,384 bytes: 134 MB in each partition
FETCH_PARTITIONS = 4
CLIENT_PARTITIONS = 4
FILL_BATCH_BYTES = 110_000
SETTLE_S = 0.3


@dataclass(frozen=True)
class RawProduce:
    """Raw produce: `requests` in all, shared by `connections`, each to its own partition."""

    connections: int
    batch_bytes: int
    record_bytes: int
    requests: int
    acks: int = 1

    def spec(self, *, port: int, pid: int, topic: str) -> raw.ProduceSpec:
        return raw.ProduceSpec(
            ports=(port,) * self.connections,
            broker_pids=(pid,),
            topic=topic,
            requests=max(1, self.requests // self.connections),
            batch_bytes=self.batch_bytes,
            record_bytes=self.record_bytes,
            acks=self.acks,
        )


def produce_to_broker(stage: Stage, broker: Broker, work: RawProduce) -> LoadReport:
    """Run a raw produce on a fresh topic and compare the end offsets with what was sent."""
    topic = stage.next_topic()
    with broker.admin() as admin:
        admin.create_topic(topic, work.connections, broker.topic_settings)
        report = run_load(work.spec(port=broker.node.port, pid=broker.node.pid, topic=topic))
        _check_offsets(admin, topic, work.connections, report.records)
        _delete(admin, topic)
    return report


def produce_to_loop(stage: Stage, work: RawProduce) -> LoadReport:
    """Run a raw produce against the loop that writes, and compare the size of its file."""
    loop = stage.receive_loop()
    spec = work.spec(port=loop.port, pid=loop.pid, topic=PRODUCE_TOPIC)
    report = run_load(spec)
    written = raw_limit.received_file(stage.directory).stat().st_size
    frame_bytes = len(wire.produce_request(PRODUCE_TOPIC, 0, spec.batch().data, acks=work.acks))
    if written != report.requests * frame_bytes:
        raise SubjectFailedError(f"the loop wrote {written} bytes")
    return report


@dataclass(frozen=True)
class RawFetch:
    """Raw fetch: `requests` in all, shared by `connections`, each from its own partition."""

    connections: int
    fetch_bytes: int
    requests: int
    copies: bool = False

    def spec(self, *, port: int, pid: int, topic_id: bytes) -> raw.FetchSpec:
        return raw.FetchSpec(
            port=port,
            broker_pids=(pid,),
            topic_id=topic_id.hex(),
            connections=self.connections,
            requests=max(1, self.requests // self.connections),
            fetch_bytes=self.fetch_bytes,
            batches=FETCH_BATCHES,
            copies=self.copies,
        )


def fetch_from_broker(broker: Broker, work: RawFetch) -> LoadReport:
    """Run a raw fetch on a topic that is filled once per broker and then stays."""
    topic = "bench-fetch"
    with broker.admin() as admin:
        if topic not in broker.filled:
            admin.create_topic(topic, FETCH_PARTITIONS, broker.topic_settings)
            fill = RawProduce(
                connections=FETCH_PARTITIONS,
                batch_bytes=raw.FETCH_BATCH_BYTES,
                record_bytes=raw.FETCH_RECORD_BYTES,
                requests=FETCH_PARTITIONS * FETCH_BATCHES,
            )
            spec = fill.spec(port=broker.node.port, pid=broker.node.pid, topic=topic)
            _check_offsets(admin, topic, FETCH_PARTITIONS, run_load(spec).records)
            broker.filled.add(topic)
        topic_id = admin.topic_id(topic)
    return run_load(work.spec(port=broker.node.port, pid=broker.node.pid, topic_id=topic_id))


def fetch_from_loop(stage: Stage, work: RawFetch) -> LoadReport:
    """Run a raw fetch against the loop that sends a file of one partition's size."""
    source_bytes = FETCH_BATCHES * raw.FETCH_BATCH_BYTES
    loop = stage.send_loop(work.fetch_bytes, source_bytes=source_bytes)
    return run_load(work.spec(port=loop.port, pid=loop.pid, topic_id=bytes(16)))


@dataclass(frozen=True)
class ClientProduce:
    """`records` through one producer of the C client."""

    records: int
    record_bytes: int
    acks: str


def client_produce(stage: Stage, broker: Broker, work: ClientProduce) -> LoadReport:
    """Produce with the C client to a fresh topic and count what arrived."""
    topic = stage.next_topic()
    with broker.admin() as admin:
        admin.create_topic(topic, CLIENT_PARTITIONS, broker.topic_settings)
        report = run_load(
            c_client.ClientProduceSpec(
                bootstrap=f"{broker.node.host}:{broker.node.port}",
                broker_pids=(broker.node.pid,),
                topic=topic,
                partitions=CLIENT_PARTITIONS,
                records=work.records,
                record_bytes=work.record_bytes,
                acks=work.acks,
            )
        )
        _check_offsets(admin, topic, CLIENT_PARTITIONS, work.records)
        _delete(admin, topic)
    return report


@dataclass(frozen=True)
class ClientConsume:
    """At least `records` of one size through one consumer of the C client."""

    records: int
    record_bytes: int


def client_consume(broker: Broker, work: ClientConsume) -> LoadReport:
    """Consume with the C client a topic that is filled once per broker."""
    topic = f"bench-consume-{work.record_bytes}"
    with broker.admin() as admin:
        if topic not in broker.filled:
            admin.create_topic(topic, CLIENT_PARTITIONS, broker.topic_settings)
            fill = RawProduce(
                connections=CLIENT_PARTITIONS,
                batch_bytes=FILL_BATCH_BYTES,
                record_bytes=work.record_bytes,
                requests=work.records * work.record_bytes // FILL_BATCH_BYTES + CLIENT_PARTITIONS,
            )
            spec = fill.spec(port=broker.node.port, pid=broker.node.pid, topic=topic)
            _check_offsets(admin, topic, CLIENT_PARTITIONS, run_load(spec).records)
            broker.filled.add(topic)
        ends = admin.offsets(topic, CLIENT_PARTITIONS) or []
    return run_load(
        c_client.ClientConsumeSpec(
            bootstrap=f"{broker.node.host}:{broker.node.port}",
            broker_pids=(broker.node.pid,),
            topic=topic,
            partitions=CLIENT_PARTITIONS,
            records=sum(ends),
            record_bytes=work.record_bytes,
        )
    )


def warm_up(stage: Stage, broker: Broker) -> int:
    """Put the same mixed load on a broker before anything counts; returns the bytes moved.

    In full it is more than 2 GB, after which a JVM has compiled what it will compile.
    """
    scaled = stage.options.scaled
    produces = (
        RawProduce(1, 110_000, 1_000, scaled(6_000)),
        RawProduce(4, 17_000, 1_000, scaled(32_000)),
        RawProduce(1, 930_000, 1_000, scaled(400)),
        RawProduce(4, 0, 100, scaled(80_000)),
    )
    fetches = (
        RawFetch(1, 1 << 16, scaled(10_000)),
        RawFetch(4, 1 << 20, scaled(1_000)),
    )
    moved = sum(produce_to_broker(stage, broker, work).moved_bytes for work in produces)
    return moved + sum(fetch_from_broker(broker, work).moved_bytes for work in fetches)


def _check_offsets(admin: Admin, topic: str, partitions: int, records: int) -> None:
    ends = admin.offsets(topic, partitions) or []
    if sum(ends) != records:
        raise SubjectFailedError(f"{records} records were acknowledged, the log ends at {ends}")


def _delete(admin: Admin, topic: str) -> None:
    admin.delete_topic(topic)
    # The files go a moment later, and their dirty pages with them.
    time.sleep(SETTLE_S)
