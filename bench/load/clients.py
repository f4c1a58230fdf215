"""Load through Python clients, record by record or as tables, as applications use them.

The settings of all clients are the same as far as they have them: 128-KB batches, 5 ms linger, no
compression, acks from all; what is not named here is a client's default. Run as
``python -m bench.load.clients SPEC``, SPEC in JSON.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bench.load.report import LoadReport, measured

BATCH_BYTES = 131_072
LINGER_MS = 5
RECORDS_AT_ONCE = 10_000


@dataclass(frozen=True)
class ClientSpec:
    """`records` values of `record_bytes` in (`kind` produce) or out (consume) of a topic."""

    client: str
    kind: str
    bootstrap: str
    broker_pids: tuple[int, ...]
    topic: str
    partitions: int
    records: int
    record_bytes: int


def to_json(spec: ClientSpec) -> str:
    return json.dumps(asdict(spec))


def _values(spec: ClientSpec) -> list[bytes]:
    chance = random.Random(1)
    return [chance.randbytes(spec.record_bytes) for _ in range(1000)]


# --- each returns the work to be measured, after everything is connected --------------------------


def produce_tables(spec: ClientSpec) -> Callable[[], None]:
    import pyarrow as pa

    import millstream.client.core.producer.table  # noqa: F401 - not part of the measurement
    from millstream.client.producer import Producer

    values = pa.array(_values(spec), pa.binary())
    table = pa.table({"value": pa.concat_arrays([values] * (spec.records // 1000))})
    producer = Producer(
        bootstrap_servers=spec.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS
    )
    producer.partitions_for(spec.topic)

    def work() -> None:
        producer.send_table(table, spec.topic).result(300)

    return work


def consume_tables(spec: ClientSpec) -> Callable[[], None]:
    import millstream.client.core.consumer.table  # noqa: F401 - not part of the measurement
    from millstream.client.consumer import Consumer
    from millstream.model.topic import TopicPartition

    consumer: Consumer[bytes, bytes] = Consumer(
        bootstrap_servers=spec.bootstrap, auto_offset_reset="earliest"
    )
    places = [TopicPartition(spec.topic, index) for index in range(spec.partitions)]

    def work() -> None:
        consumer.assign(places)
        left = spec.records
        while left > 0:
            rows = consumer.poll_table(30).num_rows
            assert rows, f"{left} records did not arrive"
            left -= rows

    return work


def produce_records(spec: ClientSpec) -> Callable[[], None]:
    from millstream.client.producer import Producer

    values = _values(spec)
    producer = Producer(
        bootstrap_servers=spec.bootstrap, batch_size=BATCH_BYTES, linger_ms=LINGER_MS
    )
    producer.partitions_for(spec.topic)

    def work() -> None:
        send, topic = producer.send, spec.topic
        for _ in range(spec.records // 1000):
            for value in values:
                send(topic, value)
        producer.flush(300)

    return work


def consume_records(spec: ClientSpec) -> Callable[[], None]:
    from millstream.client.consumer import Consumer
    from millstream.model.topic import TopicPartition

    consumer: Consumer[bytes, bytes] = Consumer(
        bootstrap_servers=spec.bootstrap, auto_offset_reset="earliest"
    )
    places = [TopicPartition(spec.topic, index) for index in range(spec.partitions)]

    def work() -> None:
        consumer.assign(places)
        left = spec.records
        while left > 0:
            records = consumer.poll(30, max_records=RECORDS_AT_ONCE)
            assert records, f"{left} records did not arrive"
            left -= len(records)

    return work


def produce_aiokafka(spec: ClientSpec) -> Callable[[], None]:
    from aiokafka import AIOKafkaProducer

    values = _values(spec)
    runner = asyncio.Runner()

    async def begin() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=spec.bootstrap,
            acks="all",
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        )
        await producer.start()
        await producer.partitions_for(spec.topic)
        return producer

    producer = runner.run(begin())

    async def send() -> None:
        for _ in range(spec.records // 1000):
            for value in values:
                await producer.send(spec.topic, value)
        await producer.flush()

    return lambda: runner.run(send())


def consume_aiokafka(spec: ClientSpec) -> Callable[[], None]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    runner = asyncio.Runner()

    async def begin() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=spec.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        return consumer

    consumer = runner.run(begin())

    async def read() -> None:
        consumer.assign([TopicPartition(spec.topic, index) for index in range(spec.partitions)])
        left = spec.records
        while left > 0:
            found = await consumer.getmany(timeout_ms=30_000, max_records=RECORDS_AT_ONCE)
            assert found, f"{left} records did not arrive"
            left -= sum(map(len, found.values()))

    return lambda: runner.run(read())


def produce_kafka_python(spec: ClientSpec) -> Callable[[], None]:
    from kafka import KafkaProducer

    values = _values(spec)
    producer = KafkaProducer(
        bootstrap_servers=spec.bootstrap,
        acks="all",
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    producer.partitions_for(spec.topic)

    def work() -> None:
        for _ in range(spec.records // 1000):
            for value in values:
                producer.send(spec.topic, value)
        producer.flush(300)

    return work


def consume_kafka_python(spec: ClientSpec) -> Callable[[], None]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=spec.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )

    def work() -> None:
        consumer.assign([TopicPartition(spec.topic, index) for index in range(spec.partitions)])
        left = spec.records
        while left > 0:
            found = consumer.poll(timeout_ms=30_000, max_records=RECORDS_AT_ONCE)
            assert found, f"{left} records did not arrive"
            left -= sum(map(len, found.values()))

    return work


def produce_confluent(spec: ClientSpec) -> Callable[[], None]:
    from confluent_kafka import Producer

    values = _values(spec)
    producer = Producer(
        {
            "bootstrap.servers": spec.bootstrap,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.list_topics(spec.topic, timeout=30)

    def work() -> None:
        produce, topic = producer.produce, spec.topic
        for _ in range(spec.records // 1000):
            for value in values:
                produce(topic, value)
            while len(producer) > 500_000:
                producer.poll(0.01)
        assert not producer.flush(300)

    return work


def consume_confluent(spec: ClientSpec) -> Callable[[], None]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": spec.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            # See c_client: with its defaults it pauses whenever 100,000 records wait.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.list_topics(spec.topic, timeout=30)

    def work() -> None:
        consumer.assign([TopicPartition(spec.topic, index, 0) for index in range(spec.partitions)])
        left = spec.records
        while left > 0:
            records = consumer.consume(RECORDS_AT_ONCE, timeout=30)
            assert records, f"{left} records did not arrive"
            left -= len(records)

    return work


WORK: dict[tuple[str, str], Callable[[ClientSpec], Callable[[], None]]] = {
    ("tables", "produce"): produce_tables,
    ("tables", "consume"): consume_tables,
    ("records", "produce"): produce_records,
    ("records", "consume"): consume_records,
    ("aiokafka", "produce"): produce_aiokafka,
    ("aiokafka", "consume"): consume_aiokafka,
    ("kafka-python", "produce"): produce_kafka_python,
    ("kafka-python", "consume"): consume_kafka_python,
    ("confluent-kafka", "produce"): produce_confluent,
    ("confluent-kafka", "consume"): consume_confluent,
}


def run(spec: ClientSpec) -> LoadReport:
    """Connect, then measure until the last record is acknowledged or has arrived."""
    return measured(
        spec.broker_pids,
        WORK[spec.client, spec.kind](spec),
        requests=0,
        records=spec.records,
        moved_bytes=spec.records * spec.record_bytes,
    )


if __name__ == "__main__":
    import os

    print(run(ClientSpec(**json.loads(sys.argv[1]))).to_json(), flush=True)
    # What clients do at their ends is not measured, and some take seconds over it.
    os._exit(0)
