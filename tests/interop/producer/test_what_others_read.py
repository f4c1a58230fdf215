"""What our producer writes, others read: each codec, headers, nulls, timestamps."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import closing

import confluent_kafka
import pytest
from tests.broker_process import BrokerProcess
from tests.interop.clients.patience import ASK_AGAIN_MS

from millstream.client import Producer

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, TopicPartition

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

TIMEOUT_S = 60.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
Row = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def rows() -> list[Row]:
    """Timestamps, keys, values and headers of every kind."""
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("a", b"1")],
        [("a", b"1"), ("a", None), ("ü" * 40, b"")],
        [(f"h{number}", bytes(number)) for number in range(20)],
    ]
    keys = [None, b"", b"k", bytes(range(256))]
    values = [None, b"", b"v" * 100, b"x" * 20_000]
    return [
        (1_700_000_000_000 + 7 * number, keys[number % 4], values[number // 4 % 4], header)
        for number in range(64)
        for header in [headers[number // 16 % 4]]
    ]


def write(broker: BrokerProcess, topic: str, codec: str, given: Iterable[Row]) -> None:
    with Producer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=20, batch_size=5000
    ) as producer:
        futures = [
            producer.send(topic, value, key, partition=0, timestamp_ms=stamp, headers=headers)
            for stamp, key, value, headers in given
        ]
        assert [each.result(TIMEOUT_S).offset for each in futures] == list(range(len(futures)))


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads(broker: BrokerProcess, new_topic: Callable[[], str], codec: str) -> None:
    topic = new_topic()
    write(broker, topic, codec, rows())
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < len(rows()) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            headers = message.headers() or []
            found.append((message.timestamp()[1], message.key(), message.value(), headers))
    consumer.close()
    assert found == rows()


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads(
    broker: BrokerProcess, new_topic: Callable[[], str], codec: str
) -> None:
    topic = new_topic()
    write(broker, topic, codec, rows())
    with closing(
        KafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            consumer_timeout_ms=TIMEOUT_S * 1000,
            metadata_max_age_ms=ASK_AGAIN_MS,
        )
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found = [
            (each.timestamp, each.key, each.value, list(each.headers))
            for _, each in zip(rows(), consumer, strict=False)
        ]
    assert found == rows()
