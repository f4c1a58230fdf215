"""Four clients, each with one way to produce lines to partitions and one to read them all back."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Protocol

import aiokafka
import confluent_kafka
import pytest
from tests.interop.clients.patience import ASK_AGAIN_MS

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

Lines = dict[int, list[bytes]]
"""Lines by partition, in order."""

TIMEOUT_S = 60.0


class Carrier(Protocol):
    """One client."""

    name: str

    def produce(self, bootstrap: str, topic: str, lines: Mapping[int, Sequence[bytes]]) -> None:
        """Write each partition's lines in order; all are acknowledged on return."""

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> Lines:
        """Read as many records of each partition from its beginning."""


class ConfluentKafka:
    name = "confluent-kafka"

    def produce(self, bootstrap: str, topic: str, lines: Mapping[int, Sequence[bytes]]) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        failures: list[object] = []
        for partition, values in lines.items():
            for value in values:
                producer.produce(
                    topic,
                    value,
                    partition=partition,
                    on_delivery=lambda error, message: failures.append(error) if error else None,
                )
                producer.poll(0)
        assert producer.flush(TIMEOUT_S) == 0
        assert failures == []

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> Lines:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"{topic}-{self.name}"}
        )
        found: Lines = {partition: [] for partition in counts}
        try:
            consumer.assign(
                [confluent_kafka.TopicPartition(topic, partition, 0) for partition in counts]
            )
            deadline = time.monotonic() + TIMEOUT_S
            while sum(map(len, found.values())) < sum(counts.values()):
                assert time.monotonic() < deadline, {p: len(v) for p, v in found.items()}
                for message in consumer.consume(10_000, timeout=0.2):
                    assert message.error() is None
                    found[message.partition()].append(message.value())
        finally:
            consumer.close()
        return found


class KafkaPython:
    name = "kafka-python"

    def produce(self, bootstrap: str, topic: str, lines: Mapping[int, Sequence[bytes]]) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        try:
            sent = [
                producer.send(topic, value, partition=partition)
                for partition, values in lines.items()
                for value in values
            ]
            producer.flush(TIMEOUT_S)
            for future in sent:
                future.get(TIMEOUT_S)
        finally:
            producer.close()

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> Lines:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            metadata_max_age_ms=ASK_AGAIN_MS,
        )
        found: Lines = {partition: [] for partition in counts}
        try:
            consumer.assign([kafka.TopicPartition(topic, partition) for partition in counts])
            deadline = time.monotonic() + TIMEOUT_S
            while sum(map(len, found.values())) < sum(counts.values()):
                assert time.monotonic() < deadline, {p: len(v) for p, v in found.items()}
                for place, records in consumer.poll(200, max_records=10_000).items():
                    found[place.partition] += [record.value for record in records]
        finally:
            consumer.close()
        return found


class AioKafka:
    name = "aiokafka"

    def produce(self, bootstrap: str, topic: str, lines: Mapping[int, Sequence[bytes]]) -> None:
        asyncio.run(self._produce(bootstrap, topic, lines))

    async def _produce(
        self, bootstrap: str, topic: str, lines: Mapping[int, Sequence[bytes]]
    ) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5)
        await producer.start()
        try:
            sent = [
                await producer.send(topic, value, partition=partition)
                for partition, values in lines.items()
                for value in values
            ]
            await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)
        finally:
            await producer.stop()

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> Lines:
        return asyncio.run(self._consume(bootstrap, topic, counts))

    async def _consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> Lines:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest"
        )
        found: Lines = {partition: [] for partition in counts}
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, partition) for partition in counts])
            deadline = time.monotonic() + TIMEOUT_S
            while sum(map(len, found.values())) < sum(counts.values()):
                assert time.monotonic() < deadline, {p: len(v) for p, v in found.items()}
                for place, records in (await consumer.getmany(timeout_ms=200)).items():
                    found[place.partition] += [record.value for record in records]
        finally:
            await consumer.stop()
        return found


class Kcat:
    name = "kcat"

    def produce(self, bootstrap: str, topic: str, lines: Mapping[int, Sequence[bytes]]) -> None:
        for partition, values in lines.items():
            run_kcat(
                *("-P", "-b", bootstrap, "-t", topic, "-p", str(partition)),
                stdin=b"".join(value + b"\n" for value in values),
            )

    def consume(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> Lines:
        printed = run_kcat(
            *("-C", "-q", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e"),
            *("-f", "%p %s\n"),
        )
        found: Lines = {partition: [] for partition in counts}
        for line in printed.splitlines():
            partition, _, value = line.partition(b" ")
            found[int(partition)].append(value)
        return found


def run_kcat(*arguments: str, stdin: bytes = b"") -> bytes:
    """Run kcat and return what it printed; skips the test where kcat is not installed."""
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("needs kcat: apt-get install kcat")
    done = subprocess.run(
        [program, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


CARRIERS: tuple[Carrier, ...] = (ConfluentKafka(), KafkaPython(), AioKafka(), Kcat())
