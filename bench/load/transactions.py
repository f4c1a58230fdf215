"""Transactions through the C client (librdkafka): a producer commits one after the other, several
producers at the same time.

Run as ``python -m bench.load.transactions SPEC``, SPEC in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.load.c_client import SILENCE_S, WrongAnswerError
from bench.load.report import LoadReport, measured

WARM_UP = 24
TIMEOUT_S = 60


@dataclass(frozen=True)
class TransactionSpec:
    """`transactions` of one record to each of `partitions`; with `reads_back` what is measured is
    a committed reader that reads all of them, otherwise their producer.

    With `commits_only` the seconds are those spent in commit_transaction alone. `producers` share
    the transactions, each on a thread and with an id of its own.
    """

    bootstrap: str
    broker_pids: tuple[int, ...]
    topic: str
    partitions: int
    transactions: int
    record_bytes: int
    commits_only: bool = False
    reads_back: bool = False
    producers: int = 1


def run(spec: TransactionSpec) -> LoadReport:
    """Run the transactions, and read them back where that is asked for."""
    producers = [_Transactions(spec, number) for number in range(spec.producers)]

    def transact(count: int) -> None:
        with ThreadPoolExecutor(len(producers)) as pool:
            list(pool.map(lambda each: each.run(count // len(producers)), producers))

    transact(WARM_UP)
    for each in producers:
        each.in_commits = 0.0
    report = _measured(spec, lambda: transact(spec.transactions))
    if spec.commits_only:
        return LoadReport(**{**asdict(report), "seconds": producers[0].in_commits})
    if spec.reads_back:
        wanted = (WARM_UP + spec.transactions) * spec.partitions
        return _measured(spec, lambda: _read(spec, wanted))
    return report


class _Transactions:
    """One producer, and the seconds that its commits have taken."""

    def __init__(self, spec: TransactionSpec, number: int) -> None:
        self._spec = spec
        self._value = bytes(spec.record_bytes)
        self.in_commits = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": spec.bootstrap,
                "transactional.id": f"bench of {spec.topic}, {number}",
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)

    def run(self, count: int) -> None:
        """Commit so many transactions, one after the other."""
        producer, spec = self._producer, self._spec
        for _ in range(count):
            producer.begin_transaction()
            for index in range(spec.partitions):
                producer.produce(spec.topic, self._value, partition=index)
            if producer.flush(TIMEOUT_S):
                raise WrongAnswerError("records were not acknowledged")
            start = time.perf_counter()
            producer.commit_transaction(TIMEOUT_S)
            self.in_commits += time.perf_counter() - start


def _measured(spec: TransactionSpec, work: Callable[[], None]) -> LoadReport:
    records = spec.transactions * spec.partitions
    return measured(
        spec.broker_pids,
        work,
        requests=spec.transactions,
        records=records,
        moved_bytes=records * spec.record_bytes,
    )


def _read(spec: TransactionSpec, wanted: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(spec.topic, index, 0) for index in range(spec.partitions)])
    last_progress = time.monotonic()
    while wanted > 0:
        messages = consumer.consume(10_000, timeout=0.2)
        if messages:
            last_progress = time.monotonic()
        elif time.monotonic() - last_progress > SILENCE_S:
            raise WrongAnswerError(f"{wanted} committed records did not arrive")
        for message in messages:
            if message.error() is not None:
                raise WrongAnswerError(f"consumer: {message.error()}")
        wanted -= len(messages)
    consumer.close()


def to_json(spec: TransactionSpec) -> str:
    """Return the command-line argument for a spec."""
    return json.dumps(asdict(spec))


if __name__ == "__main__":
    print(run(TransactionSpec(**json.loads(sys.argv[1]))).to_json())
