"""Kafka Connect's distributed worker on a broker of ours, with exactly-once sources (KIP-618)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from bench.peers.kafka import KafkaInstall, KafkaNotFoundError, find_kafka_programs, free_port
from tests.broker_process import BrokerProcess
from tests.interop.java.program import Program
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, TopicPartition
from millstream.client.core.admin.configs import Resource, ResourceType

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.slow, pytest.mark.timeout(300)]

WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
TOPIC: Final = "lines"
LINES: Final = 300_000


@pytest.fixture(scope="module")
def programs() -> KafkaInstall:
    try:
        return find_kafka_programs()
    except KafkaNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as process:
        yield process


class Worker(Program):
    """One worker and its REST interface."""

    def __init__(self, programs: KafkaInstall, broker: BrokerProcess, directory: Path) -> None:
        self.port = free_port()
        properties = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": "500",
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.discovery": "service_load",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
            **{
                f"{name}.storage.{setting}": value
                for name in ("config", "offset", "status")
                for setting, value in (("topic", f"connect-{name}"), ("replication.factor", "1"))
            },
            "offset.storage.partitions": "5",
        }
        super().__init__(programs, WORKER, directory, properties)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request; return the answer, or None while the worker cannot answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except (OSError, urllib.error.URLError):
            assert not self.has_ended(), self.output[-3000:]
            return None

    def start_connector(self, name: str, **settings: str) -> None:
        """Make a connector and wait until its task runs."""

        def is_made() -> bool:
            return self.ask("PUT", f"/connectors/{name}/config", settings) is not None

        wait_until(is_made, f"the connector {name}")
        self.wait_for_task(name)

    def wait_for_task(self, name: str) -> None:
        def runs() -> bool:
            status = self.ask("GET", f"/connectors/{name}/status")
            tasks = (status or {}).get("tasks", [])
            assert all(task["state"] != "FAILED" for task in tasks), tasks
            return bool(tasks) and all(task["state"] == "RUNNING" for task in tasks)

        wait_until(runs, f"the task of {name}")


def committed_values(broker: BrokerProcess, *, until: int) -> list[str]:
    """Read the topic as a reader of committed records, until it has so many."""
    values: list[str] = []
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap, isolation_level="read_committed"
    ) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()

        def is_read() -> bool:
            values.extend((each.value or b"").decode() for each in consumer.poll(0.5))
            return len(values) >= until

        wait_until(is_read, f"{until} records", at_most_s=120)
        values.extend((each.value or b"").decode() for each in consumer.poll(1))
    return values


def test_a_source_whose_worker_is_killed_writes_each_line_once(
    programs: KafkaInstall, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    expected = [f"line {number}" for number in range(LINES)]
    source.write_text("".join(f"{line}\n" for line in expected))
    with Worker(programs, own_broker, tmp_path / "first") as first:
        first.start_connector(
            "source",
            **{"connector.class": "FileStreamSource", "tasks.max": "1"},
            file=str(source),
            topic=TOPIC,
        )
        assert len(committed_values(own_broker, until=1)) < LINES, "all was there before the kill"
        first.kill()
    with Worker(programs, own_broker, tmp_path / "second") as second:
        second.start_connector(
            "sink",
            **{"connector.class": "FileStreamSink", "tasks.max": "1"},
            file=str(target),
            topics=TOPIC,
        )
        second.wait_for_task("source")
        assert committed_values(own_broker, until=LINES) == expected

        def is_written() -> bool:
            return target.exists() and len(target.read_text().splitlines()) >= LINES

        wait_until(is_written, "the sink's file", at_most_s=120)
        offsets = second.ask("GET", "/connectors/source/offsets")["offsets"]
        with Admin(bootstrap_servers=own_broker.bootstrap) as admin:
            names = ("connect-config", "connect-offset", "connect-status")
            described = admin.describe_configs(
                [Resource(ResourceType.TOPIC, name) for name in names]
            ).get_all()
    assert target.read_text().splitlines() == expected
    assert [each["offset"]["position"] for each in offsets] == [source.stat().st_size]
    for values in described.values():
        assert {each.name: each.value for each in values}["cleanup.policy"] == "compact"
