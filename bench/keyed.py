"""Keyed records for the compaction rows, by the C client: as fast as it will, or at a rate."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Producer

from bench.peers.subject import SubjectFailedError

RECORDS_PER_CALL = 2_000
QUEUE_LIMIT = 60_000


@dataclass(frozen=True)
class KeyedLoad:
    """`records` values of random bytes to partition 0, each with one of `keys` keys by chance."""

    topic: str
    records: int
    keys: int
    record_bytes: int


def write_keyed(bootstrap: str, load: KeyedLoad) -> None:
    """Write all records and wait for their acknowledgement."""
    producer = _producer(bootstrap)
    chance = random.Random(7)
    values = [chance.randbytes(load.record_bytes) for _ in range(16)]
    left = load.records
    while left:
        wanted = min(left, RECORDS_PER_CALL)
        batch = [
            {"key": b"key-%010d" % chance.randrange(load.keys), "value": values[n % 16]}
            for n in range(wanted)
        ]
        left -= producer.produce_batch(load.topic, batch, partition=0)
        while len(producer) > QUEUE_LIMIT:
            producer.poll(0.01)
    if producer.flush(120):
        raise SubjectFailedError("keyed records were not acknowledged in 120 s")


@contextmanager
def keyed_stream(bootstrap: str, load: KeyedLoad, records_per_s: int) -> Iterator[None]:
    """Write keyed records at a steady rate on a thread for as long as the block runs."""
    stopping = threading.Event()
    producer = _producer(bootstrap)
    value = random.Random(7).randbytes(load.record_bytes)

    def write() -> None:
        chance = random.Random(11)
        period_s = 0.02
        due = time.perf_counter()
        while not stopping.is_set():
            batch = [
                {"key": b"key-%010d" % chance.randrange(load.keys), "value": value}
                for _ in range(int(records_per_s * period_s))
            ]
            if len(producer) < QUEUE_LIMIT:
                producer.produce_batch(load.topic, batch, partition=0)
            producer.poll(0)
            due += period_s
            time.sleep(max(0.0, due - time.perf_counter()))
        producer.flush(60)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stopping.set()
        writer.join(90)


def _producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": 1,
            "linger.ms": 5,
            "batch.size": 131_072,
            "queue.buffering.max.messages": 4 * QUEUE_LIMIT,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
