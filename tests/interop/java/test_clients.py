"""Kafka's Java producer and consumer, through its console, verifiable and performance tools."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools, create, server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

NewTopic = Callable[[], str]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_and_consumer(
    tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic()
    lines = [f"k{number}\tvalue {number} äöü" for number in range(500)]
    tools.run(
        "kafka-console-producer",
        *server(broker),
        *("--topic", topic, "--compression-codec", codec),
        *("--reader-property", "parse.key=true"),
        stdin="".join(f"{line}\n" for line in lines),
    )
    done = tools.attempt(
        "kafka-console-consumer",
        *server(broker),
        *("--topic", topic, "--from-beginning", "--max-messages", "500"),
        *("--timeout-ms", "30000", "--formatter-property", "print.key=true"),
    )
    assert sorted(done.stdout.splitlines()) == sorted(lines), done.stderr


@pytest.mark.parametrize("acks", ["-1", "1", "0"])
def test_verifiable_producer_and_consumer(
    tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic, acks: str
) -> None:
    topic = new_topic()
    create(broker, topic, 3)
    count = 5000
    produced = tools.attempt(
        "kafka-verifiable-producer",
        *server(broker),
        *("--topic", topic, "--max-messages", str(count), "--acks", acks),
    )
    events = [json.loads(line) for line in produced.stdout.splitlines() if line.startswith("{")]
    sent = [int(each["value"]) for each in events if each["name"] == "producer_send_success"]
    assert sorted(sent) == list(range(count)), produced.stderr
    assert events[-1]["name"] == "tool_data"
    assert events[-1]["acked"] == count

    consumed = tools.attempt(
        "kafka-verifiable-consumer",
        *server(broker),
        *("--topic", topic, "--group-id", f"group-{topic}", "--max-messages", str(count)),
        *("--reset-policy", "earliest", "--verbose"),
    )
    seen = [json.loads(line) for line in consumed.stdout.splitlines() if line.startswith("{")]
    values = [int(each["value"]) for each in seen if each["name"] == "record_data"]
    assert sorted(values) == list(range(count)), consumed.stderr
    assert any(each["name"] == "partitions_assigned" for each in seen)
    committed = [each for each in seen if each["name"] == "offsets_committed"]
    assert committed
    assert all(each["success"] for each in committed)


def test_performance_tools(tools: KafkaTools, broker: BrokerProcess, new_topic: NewTopic) -> None:
    topic = new_topic()
    create(broker, topic, 2)
    count = 200_000
    produced = tools.attempt(
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", str(count), "--record-size", "100"),
        *("--throughput", "-1", "--bootstrap-server", broker.bootstrap),
        *("--command-property", "acks=all"),
    )
    assert produced.returncode == 0, produced.stderr
    assert re.search(rf"^{count} records sent", produced.stdout, re.MULTILINE), produced.stdout
    consumed = tools.attempt(
        "kafka-consumer-perf-test",
        *server(broker),
        *("--topic", topic, "--num-records", str(count), "--timeout", "30000"),
    )
    assert consumed.returncode == 0, consumed.stderr
    columns = consumed.stdout.strip().splitlines()[-1].split(", ")
    assert int(columns[4]) >= count, consumed.stdout
