"""Idempotent sends through a proxy that delays, cuts and resets, to a real broker.

A hundred seeded runs, several at a time: what was acknowledged is there once, in order, at the
offset that was told, and nothing is there twice. Memory stays under ``buffer.memory``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.fault_proxy import FaultProxy

from millstream.client import Admin, Consumer, Producer
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

RUNS = 100
AT_ONCE = 5
RECORDS = 200
PARTITIONS = 2


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    """A broker that tells clients to come through the proxy."""
    with FaultProxy(seed=5) as made:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{made.port}",
        }
        with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
            made.upstream = ("127.0.0.1", broker.port)
            yield made


def run(proxy: FaultProxy, seed: int) -> list[dict[int, int]]:
    """Send; return for each partition the numbers that were acknowledged and their offsets."""
    chance = random.Random(seed)
    acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
    with Producer(
        bootstrap_servers=proxy.bootstrap,
        linger_ms=chance.choice((0, 1, 5)),
        batch_size=chance.choice((100, 300, 2000)),
        buffer_memory=chance.choice((20_000, 1_000_000)),
        compression_type=chance.choice(("none", "lz4")),
        request_timeout_ms=2000,
        delivery_timeout_ms=60_000,
        retry_backoff_ms=5,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=50,
    ) as producer:
        futures = [
            (
                number,
                number % PARTITIONS,
                producer.send(f"run-{seed}", b"%d" % number, partition=number % PARTITIONS),
            )
            for number in range(RECORDS)
        ]
        for number, partition, future in futures:
            acknowledged[partition][number] = future.result(90).offset
        assert producer.metrics()["producer-metrics", "record-error-total"] == 0
    return acknowledged


def read(proxy: FaultProxy, topic: str, partition: int) -> list[int]:
    place = TopicPartition(topic, partition)
    found: list[int] = []
    with Consumer(bootstrap_servers=proxy.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [int(record.value or b"-1") for record in consumer.poll(1)]
    return found


@pytest.mark.long
def test_neither_lost_nor_doubled_nor_reordered(proxy: FaultProxy) -> None:
    topics = [NewTopic(f"run-{seed}", PARTITIONS, 1) for seed in range(RUNS)]
    with Admin(bootstrap_servers=proxy.bootstrap) as admin:
        admin.create_topics(topics).get_all()
    proxy.trouble = 0.08
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda seed: run(proxy, seed), range(RUNS)))
    proxy.trouble = 0.0
    assert all(proxy.happened[what] > 20 for what in ("delay", "cut", "cut later", "reset"))
    for seed, partitions in enumerate(results):
        for partition, acknowledged in enumerate(partitions):
            there = read(proxy, f"run-{seed}", partition)
            assert there == sorted(acknowledged), f"run {seed}, partition {partition}"
            for number, offset in acknowledged.items():
                assert offset in (-1, there.index(number)), f"run {seed}: told {offset}"


def test_memory_stays_bounded(proxy: FaultProxy, tmp_path: Path) -> None:
    """Ten times ``buffer.memory`` goes through a slow connection: what is held stays below."""
    with Admin(bootstrap_servers=proxy.bootstrap) as admin:
        admin.create_topics([NewTopic("memory", 1, 1)]).get_all()
    most = 0
    with Producer(
        bootstrap_servers=proxy.bootstrap, buffer_memory=2_000_000, batch_size=50_000
    ) as producer:
        for _ in range(20_000):
            producer.send("memory", bytes(1000))
            most = max(most, producer._accumulator.held_bytes)
        producer.flush(60)
        assert producer._accumulator.held_bytes == 0
    assert most <= 2_000_000
