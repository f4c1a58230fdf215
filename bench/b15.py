"""B15: transactions: how many a second, what a commit takes, how fast they are read back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bench.load.report import LoadReport
from bench.load.transactions import TransactionSpec, to_json
from bench.metrics import CPU_PER_REQUEST, RECORDS_PER_S
from bench.pairs import KAFKA, MILLSTREAM, Measure, Metric, Row, Target
from bench.peers.machine import create_topic
from bench.session import Session
from bench.stage import Broker, Stage, run_module
from bench.tables import Section, throughput_table

RECORD_BYTES = 100
# Partitions of a transaction, and how many transactions take some seconds.
CASES = ((1, 2_000), (100, 300))
PRODUCERS = 8
BROKERS = 2
SETTINGS_OF_MACHINE = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Several brokers would keep several replicas of the coordinators' topic."""
TRANSACTIONS_PER_S = Metric(
    "transactions/s", lambda report: report.requests / report.seconds, digits=1
)
MS_PER_COMMIT = Metric("ms/commit", lambda report: report.seconds / report.requests * 1e3, digits=2)
CONDITIONS = (
    "one broker, replication factor 1 of all topics, the coordinator's too; Millstream "
    "log.flush.policy=os, Apache Kafka its default",
    "a producer of the C client (librdkafka), linger.ms=0, one 100-byte record to each partition "
    "of a transaction, flushed, then committed; the next begins after it; one alone spends most of "
    "the time in its own timers, eight at once do not",
    "brokers of one machine: `serve --brokers 2`, where one broker uses one core, beside one Kafka "
    "node, which uses all; CPU of a transaction: of all processes, keeper and supervisor included",
    "EndTxn: from request to answer on one blocking connection, the same client for both",
    "latency: the time in commit_transaction alone; reading: one consumer, read_committed, of all "
    "that the same run has written",
)


def run(session: Session) -> list[Section]:
    """Run the rows that `--only` leaves."""
    return [throughput_table("B15 · transactions", session.run(rows(session.stage)))]


def rows(stage: Stage) -> list[Row]:
    """Return the rows: throughput, latency and reading for few and for many partitions."""
    found = []
    for partitions, transactions in CASES:
        spec = TransactionSpec(
            bootstrap="",
            broker_pids=(),
            topic="",
            partitions=partitions,
            transactions=stage.options.scaled(transactions),
            record_bytes=RECORD_BYTES,
        )
        name = "1 partition" if partitions == 1 else f"{partitions} partitions"
        together = replace(spec, producers=PRODUCERS, transactions=4 * spec.transactions)
        latency = replace(spec, commits_only=True)
        reading = replace(spec, reads_back=True)
        found += [
            Row(
                f"transactions of {name}",
                _on_brokers(stage, spec),
                TRANSACTIONS_PER_S,
                CPU_PER_REQUEST,
                (Target(KAFKA, 1.5),),
            ),
            Row(
                f"{PRODUCERS} producers, {name}",
                _on_brokers(stage, together),
                TRANSACTIONS_PER_S,
                CPU_PER_REQUEST,
                (Target(KAFKA, 1.5),),
            ),
            Row(
                f"{PRODUCERS} producers, {name}, {BROKERS} brokers of one machine",
                _on_machines(stage, together),
                TRANSACTIONS_PER_S,
                CPU_PER_REQUEST,
                (Target(KAFKA, 1.5),),
            ),
            Row(
                f"commit of {name}",
                _on_brokers(stage, latency),
                MS_PER_COMMIT,
                CPU_PER_REQUEST,
                (Target(KAFKA, 0.5, at_most=True),),
            ),
            Row(
                f"EndTxn of {name}",
                _on_brokers(stage, spec, module="bench.load.end_txn"),
                MS_PER_COMMIT,
                CPU_PER_REQUEST,
                (Target(KAFKA, 0.5, at_most=True),),
            ),
            Row(
                f"read committed, {name}",
                _on_brokers(stage, reading),
                RECORDS_PER_S,
                CPU_PER_REQUEST,
                (Target(KAFKA, 1.0),),
            ),
        ]
    return found


def _on_brokers(
    stage: Stage, spec: TransactionSpec, *, module: str = "bench.load.transactions"
) -> dict[str, Measure]:
    brokers = {KAFKA: stage.kafka(), MILLSTREAM: stage.millstream()}
    return {
        name: partial(_transact, stage, spec, module, broker)
        for name, broker in brokers.items()
        if broker
    }


def _on_machines(stage: Stage, spec: TransactionSpec) -> dict[str, Measure]:
    """Return the transactions on brokers of one machine, beside one Kafka node."""
    measures = _on_brokers(stage, spec)
    if MILLSTREAM in measures:
        measures[MILLSTREAM] = partial(_transact_on_machine, stage, spec)
    return measures


def _transact_on_machine(stage: Stage, spec: TransactionSpec) -> LoadReport:
    machine = stage.machine(BROKERS, SETTINGS_OF_MACHINE)
    topic = stage.next_topic()
    create_topic(machine, topic, spec.partitions)
    return run_module(
        "bench.load.transactions",
        to_json(
            replace(
                spec,
                bootstrap=",".join(f"127.0.0.1:{port}" for port in machine.ports),
                broker_pids=machine.pids,
                topic=topic,
            )
        ),
    )


def _transact(stage: Stage, spec: TransactionSpec, module: str, broker: Broker) -> LoadReport:
    """Run the transactions on a fresh topic."""
    topic = stage.next_topic()
    with broker.admin() as admin:
        admin.create_topic(topic, spec.partitions, broker.topic_settings)
        report = run_module(
            module,
            to_json(
                replace(
                    spec,
                    bootstrap=f"{broker.node.host}:{broker.node.port}",
                    broker_pids=(broker.node.pid,),
                    topic=topic,
                )
            ),
        )
        admin.delete_topic(topic)
    return report
