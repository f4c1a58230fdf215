"""`metrics.port` of a real broker: metrics, health, JSON logs, SIGUSR1."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker_process import BrokerProcess
from tests.monitoring import free_port, get, scrape, value
from tests.waiting import wait_until

from millstream.client import Admin
from millstream.client.core.admin.configs import Change, Resource, ResourceType

pytestmark = pytest.mark.system


def test_a_broker_tells_how_it_is(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "metrics.port": str(port),
        "metrics.partitions.enable": "true",
        "log.format": "json",
        "slow.request.log.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with BrokerProcess(tmp_path, settings) as broker:
        assert get(port, "/health/live") == (200, "alive\n")
        assert get(port, "/health/ready") == (200, "ready\n")
        assert get(port, "/elsewhere")[0] == 404
        before = scrape(port)
        assert value(before, "topics") == 0
        work(broker)
        after = scrape(port)
        assert value(after, "topic_records_in_total", topic="orders") == 100
        size = value(after, "topic_size_bytes", topic="orders")
        assert size > 0
        assert value(after, "topic_bytes_in_total", topic="orders") == size
        assert value(after, "topic_bytes_out_total", topic="orders") == size
        assert value(after, "partition_log_end_offset", topic="orders", partition="0") == 100
        place = {"group": "readers", "topic": "orders", "partition": "0"}
        assert value(after, "group_committed_offset", **place) == 60
        assert value(after, "group_lag_records", **place) == 40
        assert value(after, "requests_total", api="Produce") >= 1
        assert value(after, "request_waiting_seconds_count", api="Produce") >= 1
        assert value(after, "connections", listener="PLAINTEXT") >= 0
        assert value(after, "connections_accepted_total", listener="PLAINTEXT") >= 2
        directory = str(broker.data_directory)
        assert value(after, "log_directory_online", directory=directory) == 1
        assert value(after, "log_directory_free_bytes", directory=directory) > 0
        assert value(after, "log_flush_seconds_count", directory=directory) >= 1
        assert value(after, "controller_active") == 1
        push(broker, port)
        broker.process.send_signal(signal.SIGUSR1)
        wait_until(lambda: "that is all" in broker.log, "it says what it waits for")
        get(port, "/health/live")
    lines = [json.loads(line) for line in broker.log.splitlines()]
    messages = [line["message"] for line in lines]
    assert any(each.startswith("slow request: Produce v") for each in messages)
    assert any(each.startswith("thread MainThread is at") for each in messages)
    assert any(each.startswith("lane ") for each in messages)


def push(broker: BrokerProcess, port: int) -> None:
    """Subscribe to all metrics of a client of librdkafka, which pushes them (KIP-714)."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        changes = [Change("metrics", "*"), Change("interval.ms", "100")]
        resource = Resource(ResourceType.CLIENT_METRICS, "everything")
        admin.incremental_alter_configs({resource: changes}).get_all()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "pushing"})
    producer.produce("orders", b"more")
    assert producer.flush(60) == 0

    def pushed() -> bool:
        producer.poll(0.05)
        return any(
            name.startswith("kafka_client_producer_") and ("client_id", "pushing") in labels
            for name, labels in scrape(port)
        )

    wait_until(pushed, "librdkafka pushes its metrics, and they are shown")


def work(broker: BrokerProcess) -> None:
    """Produce 100 records, read them in one piece, and commit 60 of them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100})
    for number in range(100):
        producer.produce("orders", str(number).encode())
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    read = 0
    while read < 100:
        read += len(consumer.consume(100 - read, 10))
    consumer.commit(offsets=[TopicPartition("orders", 0, 60)], asynchronous=False)
    consumer.close()


def test_a_port_in_use_ends_the_start_with_one_sentence(tmp_path: Path) -> None:
    port = free_port()
    settings = {"metrics.port": str(port)}
    with (
        BrokerProcess(tmp_path / "a", settings),
        pytest.raises(Exception, match=f"metrics.port: cannot listen on 127.0.0.1:{port}"),
        BrokerProcess(tmp_path / "b", settings),
    ):
        pass
