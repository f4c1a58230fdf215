"""Clients of others that are above their quotas: they hear of it, and get all done."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from confluent_kafka import ThrottleEvent
from tests.broker_process import BrokerProcess

from millstream.client import Admin
from millstream.client.core.admin.access import QuotaEntity
from millstream.client.core.admin.topics import NewTopic

pytestmark = pytest.mark.interop

TIMEOUT_S = 60.0
RATE = 100_000
"""Bytes in a second."""
COUNT, SIZE = 60, 10_000


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with short windows, so that a quota is felt soon."""
    settings = {"quota.window.num": "3"}
    with BrokerProcess(tmp_path_factory.mktemp("limited"), settings) as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 1) for name in ("t", "filled", "u")]).get_all()
        yield process


def limit(broker: BrokerProcess, client_id: str, quota: str) -> None:
    entity = QuotaEntity((("client-id", client_id),))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_client_quotas({entity: {quota: RATE}}).get_all()


def fill(broker: BrokerProcess, topic: str, client_id: str, **more: object) -> list[ThrottleEvent]:
    throttles: list[ThrottleEvent] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "throttle_cb": throttles.append,
            "batch.size": 20_000,
            "linger.ms": 0,
            **more,
        }
    )
    for _ in range(COUNT):
        producer.produce(topic, b"x" * SIZE)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return throttles


def test_a_producer_of_librdkafka_hears_of_its_quota(limited: BrokerProcess) -> None:
    limit(limited, "lib-producer", "producer_byte_rate")
    throttles = fill(limited, "t", "lib-producer")
    assert any(each.throttle_time > 0 for each in throttles), "the client was told"
    assert fill(limited, "t", "another") == []


@pytest.mark.long
def test_a_consumer_of_librdkafka_hears_of_its_quota(limited: BrokerProcess) -> None:
    fill(limited, "filled", "filler")
    limit(limited, "lib-consumer", "consumer_byte_rate")
    throttles: list[ThrottleEvent] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": limited.bootstrap,
            "client.id": "lib-consumer",
            "group.id": "g",
            "throttle_cb": throttles.append,
            "max.partition.fetch.bytes": 50_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("filled", 0, 0)])
    received = 0
    while received < COUNT * SIZE:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        received += len(message.value())
    consumer.close()
    assert received == COUNT * SIZE
    assert any(each.throttle_time > 0 for each in throttles)


@pytest.mark.long
def test_aiokafka_is_told_of_its_quotas(
    limited: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(limited, "aio", "producer_byte_rate")
    limit(limited, "aio-reader", "consumer_byte_rate")
    told: dict[str, int] = {}
    send = AIOKafkaClient.send

    async def noting(self: AIOKafkaClient, node_id: int, request: Any, **more: Any) -> Any:
        answer = await send(self, node_id, request, **more)
        name = type(request).__name__.partition("_")[0]
        told[name] = max(told.get(name, 0), getattr(answer, "throttle_time_ms", 0))
        return answer

    monkeypatch.setattr(AIOKafkaClient, "send", noting)

    async def story() -> int:
        producer = AIOKafkaProducer(bootstrap_servers=limited.bootstrap, client_id="aio")
        await producer.start()
        for _ in range(COUNT):
            await producer.send("u", b"x" * SIZE)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            bootstrap_servers=limited.bootstrap,
            client_id="aio-reader",
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=50_000,
        )
        await consumer.start()
        partition = TopicPartition("u", 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        received = 0
        for _ in range(COUNT):
            received += len((await consumer.getone()).value or b"")
        await consumer.stop()
        return received

    assert asyncio.run(asyncio.wait_for(story(), TIMEOUT_S)) == COUNT * SIZE
    assert told["ProduceRequest"] > 0, told
    assert told["FetchRequest"] > 0, told


def millstream(broker: BrokerProcess, *words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_command_line_sets_shows_and_removes_quotas(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        set_words = ("quota", "set", "produce=1000KB/s", "request=50", "--user", "ann")
        assert "ann\t-\t-\tproducer_byte_rate\t1024000" in millstream(broker, *set_words)
        millstream(broker, "quota", "set", "consume=1MB/s", "--user-default", "--client-id", "c")
        millstream(broker, "quota", "set", "connection=5", "--ip", "10.0.0.1")
        rows = json.loads(millstream(broker, "quota", "list", "--json"))
        assert [(each["user"], each["client_id"], each["ip"], each["quota"]) for each in rows] == [
            ("(default)", "c", None, "consumer_byte_rate"),
            ("ann", None, None, "producer_byte_rate"),
            ("ann", None, None, "request_percentage"),
            (None, None, "10.0.0.1", "connection_creation_rate"),
        ]
        broker.stop()
        broker.start()
        removed = millstream(broker, "quota", "remove", "produce", "--user", "ann")
        assert removed == "ann\t-\t-\tproducer_byte_rate\t-\n"
        left = json.loads(millstream(broker, "quota", "list", "--user", "ann", "--json"))
        assert [each["quota"] for each in left] == ["request_percentage"]
        assert "fractional" in millstream(
            broker, "quota", "set", "connection=0.5", "--ip", "10.0.0.1", code=1
        )
