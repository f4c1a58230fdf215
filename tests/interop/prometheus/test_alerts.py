"""A Prometheus server scrapes three brokers under faults: each alert fires for its fault alone.

``PROMETHEUS`` names the program, else it is looked for on the path; promtool lies beside it. The
rules are those of contrib/, with seconds in place of minutes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.machine_process import MachineProcess
from tests.monitoring import free_port, scrape
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(400)]

CONTRIB: Final = Path(__file__).parents[3] / "contrib" / "prometheus"
PROMETHEUS: Final = os.environ.get("PROMETHEUS") or shutil.which("prometheus")
HELD_S: Final = 3


def program(name: str) -> str:
    """Return promtool or prometheus, or skip the test."""
    if PROMETHEUS is None:
        pytest.skip("needs Prometheus: set PROMETHEUS to its program, beside which is promtool")
    found = Path(PROMETHEUS).with_name(name)
    if not found.exists():
        pytest.skip(f"there is no {name} beside {PROMETHEUS}")
    return str(found)


def test_the_rules_are_valid_and_fire_as_their_tests_say(tmp_path: Path) -> None:
    promtool = program("promtool")
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]):
        done = subprocess.run(
            [promtool, *command], cwd=CONTRIB, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


class PrometheusServer:
    """A Prometheus over one directory that scrapes some ports every second."""

    def __init__(self, directory: Path, ports: list[int]) -> None:
        self.port = free_port()
        rules = (CONTRIB / "rules.yml").read_text()
        rules = re.sub(r"for: \d+m", f"for: {HELD_S}s", rules)
        for before, after in (
            ("_lag_seconds) > 300", "_lag_seconds) > 5"),
            # A process that is paused, and a machine that runs tests, hold loops and fill disks:
            # these two rules are tested by promtool alone.
            ("_longest_step_seconds > 1", "_longest_step_seconds > 3600"),
            ("log_directory_size_bytes < 0.1", "log_directory_size_bytes < 0"),
        ):
            assert before in rules
            rules = rules.replace(before, after)
        (directory / "rules.yml").write_text(rules)
        targets = [f"127.0.0.1:{port}" for port in ports]
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {"job_name": "millstream", "static_configs": [{"targets": targets}]}
            ],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                program("prometheus"),
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=series",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            cwd=directory,
            stdout=self._log,
            stderr=self._log,
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()

    def ask(self, path: str) -> dict[str, list[dict[str, dict[str, str]]]]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.port}{path}", timeout=10
            ) as answer:
                return dict(json.load(answer)["data"])
        except OSError:
            return {}

    def firing(self) -> set[str]:
        return {
            alert["labels"]["alertname"].removeprefix("Millstream")
            for alert in self.ask("/api/v1/alerts").get("alerts", [])
            if str(alert["state"]) == "firing"
        }

    def up(self) -> int:
        found = self.ask("/api/v1/query?query=up").get("result", [])
        return sum(str(each["value"][1]) == "1" for each in found)  # type: ignore[index]

    def wait_for(self, *alerts: str, beside: frozenset[str] = frozenset()) -> None:
        """Wait until just these alerts fire, in two looks one after the other; those ``beside`` may
        fire too.
        """
        seen: list[set[str]] = []

        def so() -> bool:
            seen.append(self.firing() - beside)
            return len(seen) > 1 and seen[-1] == seen[-2] == set(alerts)

        try:
            wait_until(so, f"{alerts} fire", at_most_s=90)
        except AssertionError as error:
            raise AssertionError(f"{error}; firing: {seen[-1]}") from None


@contextmanager
def prometheus(directory: Path, ports: list[int]) -> Iterator[PrometheusServer]:
    directory.mkdir()
    server = PrometheusServer(directory, ports)
    try:
        yield server
    finally:
        server.close()


def free_ports(count: int) -> int:
    """Return the first of some ports in a row that are free now."""
    while True:
        first = free_port()
        if all(is_free(first + index) for index in range(count)):
            return first


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def test_each_fault_fires_its_alerts_and_no_others(tmp_path: Path) -> None:
    program("prometheus")
    first = free_ports(4)
    settings = {
        "metrics.port": str(first),
        "zookeeper.session.timeout.ms": "2000",
        "replica.lag.time.max.ms": "2000",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    ports = [first, first + 1, first + 2]
    with (
        MachineProcess(tmp_path / "machine", settings, brokers=3) as machine,
        prometheus(tmp_path / "prometheus", ports) as server,
    ):
        make_topics(machine)
        wait_until(lambda: server.up() == 3, "three brokers are scraped")
        server.wait_for()

        paused = machine.broker(3)
        paused.send_signal(signal.SIGSTOP)
        try:
            server.wait_for("BrokerDown", "UnderReplicated", "OfflinePartitions")
        finally:
            paused.send_signal(signal.SIGCONT)
        server.wait_for()

        fall_behind(machine)
        server.wait_for("ConsumerLag")
        catch_up(machine)
        server.wait_for()

        keeper = machine.keeper()
        keeper.send_signal(signal.SIGSTOP)
        try:
            # A broker that has heard that its session is over is not registered either.
            server.wait_for("NoController", beside=frozenset({"BrokerNotReady"}))
        finally:
            keeper.send_signal(signal.SIGCONT)
        server.wait_for()

        machine_up = scrape(first + 3)
        for name in ("keeper", "broker 1", "broker 2", "broker 3"):
            key = "millstream_supervised_process_up", frozenset({("process", name)})
            assert machine_up[key] == 1


def make_topics(machine: MachineProcess) -> None:
    admin = AdminClient({"bootstrap.servers": machine.bootstrap})
    topics = [
        NewTopic("replicated", 3, replica_assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]]),
        NewTopic("alone", 1, replica_assignment=[[3]]),
        NewTopic("read", 1, replica_assignment=[[2]]),
    ]
    for each in admin.create_topics(topics).values():
        each.result(60)


def fall_behind(machine: MachineProcess) -> None:
    """Commit an offset of a group, and write records behind it."""
    producer = Producer({"bootstrap.servers": machine.bootstrap})
    producer.produce("read", b"1", partition=0)
    assert producer.flush(60) == 0
    commit(machine, 0)


def catch_up(machine: MachineProcess) -> None:
    commit(machine, 1)


def commit(machine: MachineProcess, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": machine.bootstrap, "group.id": "slow"})
    consumer.commit(offsets=[TopicPartition("read", 0, offset)], asynchronous=False)
    consumer.close()
