"""The rows of B1 and B6: what is run, in which unit it is shown, and what it must reach."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bench import work
from bench.load.report import LoadReport
from bench.metrics import (
    CPU_PER_MB,
    CPU_PER_REQUEST,
    MB_PER_S,
    RECORDS_PER_S,
    REQUESTS_PER_S,
)
from bench.pairs import ALSO, KAFKA, MILLSTREAM, RAW_LIMIT, Measure, Row, Target
from bench.stage import Broker, Stage

RAW_SHARE = Target(RAW_LIMIT, 0.7)
FETCH_CPU = Target(KAFKA, 0.4, at_most=True)


def raw_produce_rows(stage: Stage) -> list[Row]:
    """Pre-encoded batches out, on one and on four connections."""
    sizes = (
        # batch bytes, name, requests, targets on one and on four connections, and of the CPU
        (0, "one 100-byte record", 60_000, 3.0, 3.0, 0.25),
        (17_000, "17 KB", 32_000, 2.5, 2.0, 0.33),
        (110_000, "110 KB", 9_000, 2.5, 2.0, 0.33),
        (930_000, "930 KB", 1_000, None, 1.0, 0.5),
    )
    rows = []
    for batch_bytes, name, requests, for_one, for_four, cpu_bound in sizes:
        for connections, bound in ((1, for_one), (4, for_four)):
            job = work.RawProduce(
                connections=connections,
                batch_bytes=batch_bytes,
                record_bytes=1_000 if batch_bytes else 100,
                requests=stage.options.scaled(requests),
            )
            targets = () if bound is None else (Target(KAFKA, bound),)
            rows.append(
                Row(
                    name=f"produce {name}, {_connections(connections)}",
                    measures={
                        **_on_brokers(stage, partial(_produce, stage, job)),
                        RAW_LIMIT: partial(work.produce_to_loop, stage, job),
                    },
                    throughput=MB_PER_S if batch_bytes else REQUESTS_PER_S,
                    cpu=CPU_PER_MB if batch_bytes else CPU_PER_REQUEST,
                    targets=(*targets, RAW_SHARE) if batch_bytes == 930_000 else targets,
                    cpu_targets=(Target(KAFKA, cpu_bound, at_most=True),),
                )
            )
    return rows


def raw_fetch_rows(stage: Stage) -> list[Row]:
    """Fetched bytes thrown away, on one and on four connections."""
    rows = []
    cases = (
        # fetch bytes, name, requests, connections, copies
        (1 << 16, "64 KB", 24_000, 1, False),
        (1 << 16, "64 KB", 24_000, 4, False),
        (1 << 20, "1 MB", 3_000, 1, False),
        (1 << 20, "1 MB", 3_000, 4, False),
        (1 << 20, "1 MB", 2_000, 1, True),
    )
    for fetch_bytes, name, requests, connections, copies in cases:
        job = work.RawFetch(connections, fetch_bytes, stage.options.scaled(requests), copies)
        targets = (Target(KAFKA, 2.0),)
        rows.append(
            Row(
                name=f"fetch {name}, {_connections(connections)}{', read' if copies else ''}",
                measures={
                    **_on_brokers(stage, partial(_fetch, job)),
                    RAW_LIMIT: partial(work.fetch_from_loop, stage, job),
                },
                throughput=MB_PER_S,
                cpu=CPU_PER_MB,
                # Reading a megabyte costs the load more than sending it costs a broker.
                targets=() if copies else (*targets, RAW_SHARE) if name == "1 MB" else targets,
                cpu_targets=() if copies else (FETCH_CPU,),
                note="the load copies the bytes as a consumer would" if copies else "",
            )
        )
    return rows


def fsync_rows(stage: Stage) -> list[Row]:
    """The same with fsync before each answer: our default policy, Kafka's `flush.messages=1`."""
    rows = []
    for batch_bytes, name, connections, requests in (
        (0, "one 100-byte record", 4, 4_000),
        (110_000, "110 KB", 1, 2_000),
    ):
        job = work.RawProduce(
            connections, batch_bytes, 1_000 if batch_bytes else 100, stage.options.scaled(requests)
        )
        measures: dict[str, Measure] = {}
        kafka, ours = stage.kafka(fsync=True), stage.millstream(flush_policy="ack")
        if kafka:
            measures[KAFKA] = partial(work.produce_to_broker, stage, kafka, job)
        if ours:
            measures[MILLSTREAM] = partial(work.produce_to_broker, stage, ours, job)
        rows.append(
            Row(
                name=f"produce {name}, {_connections(connections)}, fsync",
                measures=measures,
                throughput=MB_PER_S if batch_bytes else REQUESTS_PER_S,
                cpu=CPU_PER_MB if batch_bytes else CPU_PER_REQUEST,
                note="ours log.flush.policy=ack (the default), Kafka flush.messages=1",
            )
        )
    return rows


def client_rows(stage: Stage) -> list[Row]:
    """The C client, 100-byte and 1-KB records."""
    rows = []
    for record_bytes, name, records in ((100, "100-byte", 3_000_000), (1_000, "1-KB", 800_000)):
        metric = RECORDS_PER_S if record_bytes == 100 else MB_PER_S
        scaled = stage.options.scaled(records)
        for acks in ("1", "all"):
            job = work.ClientProduce(scaled, record_bytes, acks)
            measures = _on_brokers(stage, partial(_client_produce, stage, job))
            title = f"C client, produce {name} records, acks={acks}"
            rows.append(Row(title, measures, metric, CPU_PER_MB, (Target(KAFKA, 1.0),)))
        reading = work.ClientConsume(scaled, record_bytes)
        measures = _on_brokers(stage, partial(_client_consume, reading))
        title = f"C client, consume {name} records"
        rows.append(Row(title, measures, metric, CPU_PER_MB, (Target(KAFKA, 1.0),)))
    return rows


def _on_brokers(stage: Stage, job: Callable[[Broker], LoadReport]) -> dict[str, Measure]:
    """Return the job on each broker that could be started."""
    brokers = {
        KAFKA: stage.kafka(),
        MILLSTREAM: stage.millstream(),
        ALSO: stage.millstream_also(),
    }
    return {name: partial(job, broker) for name, broker in brokers.items() if broker}


def _produce(stage: Stage, job: work.RawProduce, broker: Broker) -> LoadReport:
    return work.produce_to_broker(stage, broker, job)


def _fetch(job: work.RawFetch, broker: Broker) -> LoadReport:
    return work.fetch_from_broker(broker, job)


def _client_produce(stage: Stage, job: work.ClientProduce, broker: Broker) -> LoadReport:
    return work.client_produce(stage, broker, job)


def _client_consume(job: work.ClientConsume, broker: Broker) -> LoadReport:
    return work.client_consume(broker, job)


def _connections(count: int) -> str:
    return "1 connection" if count == 1 else f"{count} connections"
