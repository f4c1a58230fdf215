"""Kafka's consumer reads what our producer writes, and Kafka's broker takes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, server
from tests.interop.kafka_cluster import KafkaNode, small_kafka_node

from millstream.client import Producer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 2000


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    node = small_kafka_node(
        tmp_path_factory.mktemp("kafka"), {"offsets.topic.replication.factor": "1"}
    )
    node.start()
    yield node
    node.stop()


def line(number: int, codec: str) -> str:
    """Return a record as the console consumer prints it."""
    header = f"h:{number % 3},none:null" if number % 2 else "NO_HEADERS"
    key = f"k{number}" if number % 5 else "null"
    value = f"{codec} ü {number}" if number % 7 else "null"
    return f"CreateTime:{1_700_000_000_000 + number}\t{header}\t{key}\t{value}"


def write(bootstrap: str, topic: str, codec: str) -> None:
    with Producer(
        bootstrap_servers=bootstrap, compression_type=codec, linger_ms=5, batch_size=2000
    ) as producer:
        futures = [
            producer.send(
                topic,
                f"{codec} ü {number}" if number % 7 else None,
                f"k{number}" if number % 5 else None,
                partition=0,
                timestamp_ms=1_700_000_000_000 + number,
                headers={"h": b"%d" % (number % 3), "none": None} if number % 2 else None,
            )
            for number in range(COUNT)
        ]
        assert [each.result(60).offset for each in futures] == list(range(COUNT))


def check(tools: KafkaTools, bootstrap: str, topic: str, codec: str) -> None:
    done = tools.attempt(
        "kafka-console-consumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--max-messages", str(COUNT), "--timeout-ms", "30000"),
        *("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true"),
        *("--formatter-property", "print.timestamp=true"),
    )
    assert done.stdout.splitlines() == [line(number, codec) for number in range(COUNT)], done.stderr


@pytest.mark.parametrize("codec", CODECS)
def test_through_millstream(
    tools: KafkaTools, broker: BrokerProcess, new_topic: Callable[[], str], codec: str
) -> None:
    topic = new_topic()
    write(broker.bootstrap, topic, codec)
    check(tools, server(broker)[1], topic, codec)


@pytest.mark.parametrize("codec", CODECS)
def test_through_apache_kafka(
    tools: KafkaTools, kafka: KafkaNode, new_topic: Callable[[], str], codec: str
) -> None:
    topic = new_topic()
    write(kafka.bootstrap, topic, codec)
    check(tools, kafka.bootstrap, topic, codec)
