"""Load through the C client (librdkafka under confluent-kafka), as applications make it.

The same settings go to every broker; what is not named here is the client's default. Run as
``python -m bench.load.c_client SPEC``, SPEC in JSON.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.load.report import LoadReport, measured
from bench.load.settle import replicas_settle

RECORDS_PER_CALL = 1_000
QUEUE_LIMIT = 500_000
SILENCE_S = 30.0


class WrongAnswerError(Exception):
    """Records were refused, or did not arrive."""


@dataclass(frozen=True)
class ClientProduceSpec:
    """One producer sends `records` values without keys; the client chooses the partitions.

    With `settles` the brokers' CPU time counts until every replica has every record.
    """

    bootstrap: str
    broker_pids: tuple[int, ...]
    topic: str
    partitions: int
    records: int
    record_bytes: int
    acks: str
    linger_ms: int = 5
    settles: bool = False


@dataclass(frozen=True)
class ClientConsumeSpec:
    """One consumer, assigned all partitions, reads `records` from the beginning."""

    bootstrap: str
    broker_pids: tuple[int, ...]
    topic: str
    partitions: int
    records: int
    record_bytes: int


def run_produce(spec: ClientProduceSpec) -> LoadReport:
    """Produce as the spec says; it ends when the last record is acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": spec.bootstrap,
            "acks": spec.acks,
            "linger.ms": spec.linger_ms,
            "queue.buffering.max.messages": 2 * QUEUE_LIMIT,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    producer.list_topics(spec.topic, timeout=30)
    value = random.Random(1).randbytes(spec.record_bytes)

    def work() -> None:
        left = spec.records
        while left:
            wanted = min(left, RECORDS_PER_CALL)
            # A fresh list each time: the client marks the records it had no room for.
            left -= producer.produce_batch(spec.topic, [{"value": value} for _ in range(wanted)])
            while len(producer) > QUEUE_LIMIT:
                producer.poll(0.01)
        if producer.flush(120):
            raise WrongAnswerError("records were not acknowledged in 120 s")

    with ExitStack() as stack:
        settle = None
        if spec.settles:
            host = spec.bootstrap.partition(":")[0]
            ports = [int(each.rpartition(":")[2]) for each in spec.bootstrap.split(",")]
            settle = replicas_settle(stack, host, ports, spec.topic, spec.partitions, spec.records)
        return measured(
            spec.broker_pids,
            work,
            requests=0,
            records=spec.records,
            moved_bytes=spec.records * spec.record_bytes,
            settle=settle,
        )


def run_consume(spec: ClientConsumeSpec) -> LoadReport:
    """Consume as the spec says; it ends with the last record."""
    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # With its defaults the client pauses fetching for a second whenever 100,000 records
            # wait for the application, which would measure that pause.
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1 << 18,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.list_topics(spec.topic, timeout=30)

    def work() -> None:
        consumer.assign([TopicPartition(spec.topic, index, 0) for index in range(spec.partitions)])
        left, last_progress = spec.records, time.monotonic()
        while left > 0:
            messages = consumer.consume(10_000, timeout=0.2)
            if messages:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > SILENCE_S:
                raise WrongAnswerError(f"{left} records did not arrive")
            for message in messages:
                if message.error() is not None:
                    raise WrongAnswerError(f"consumer: {message.error()}")
            left -= len(messages)

    report = measured(
        spec.broker_pids,
        work,
        requests=0,
        records=spec.records,
        moved_bytes=spec.records * spec.record_bytes,
    )
    consumer.close()
    return report


def to_json(spec: ClientProduceSpec | ClientConsumeSpec) -> str:
    """Return the command-line argument for a spec."""
    return json.dumps({"kind": type(spec).__name__, **asdict(spec)})


def main(argument: str) -> None:
    fields = json.loads(argument)
    if fields.pop("kind") == "ClientProduceSpec":
        report = run_produce(ClientProduceSpec(**fields))
    else:
        report = run_consume(ClientConsumeSpec(**fields))
    print(report.to_json())


if __name__ == "__main__":
    main(sys.argv[1])
