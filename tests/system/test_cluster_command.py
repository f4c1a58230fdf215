"""`millstream cluster start` as somebody uses it who tries things out: a path with a space, a
second start beside the first, processes that die, a restart.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from millstream.client import Admin, Consumer, Producer
from millstream.client.core.admin.configs import Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic
from millstream.client.errors import ClientError
from millstream.model.errors import KafkaError
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(240)]

MILLSTREAM = (sys.executable, "-m", "millstream.cli.main")
TIMEOUT_S = 60.0


class Started:
    """One `cluster start` and what it prints."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._errors = (directory.parent / f"{directory.name}.err").open("w+")
        self.process = subprocess.Popen(
            [*MILLSTREAM, "cluster", "start", "--dir", str(directory), *arguments],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        output = self.process.stdout
        assert output is not None
        found = re.search(r"listening on (\S+), data in", output.readline())
        assert found is not None, self.said
        self.bootstrap = found[1]
        self.joining = output.readline().partition("joins with: ")[2]
        joining = re.search(
            r"--override '?((?:zookeeper\.connect|metadata\.keeper\.socket)=[^']+?)'? --override",
            self.joining,
        )
        assert joining is not None
        self.store = joining[1]

    @property
    def said(self) -> str:
        """What it printed on standard error."""
        return Path(self._errors.name).read_text()

    def child(self, words: str) -> psutil.Process:
        """Return the child process whose command line has these words."""
        for each in psutil.Process(self.process.pid).children():
            if words in " ".join(each.cmdline()):
                return each
        raise AssertionError(f"no child runs {words}")

    def stop(self, number: int) -> None:
        """Send a signal; nothing may be left behind."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        assert self.process.wait(TIMEOUT_S) == 0, self.said
        assert not [each for each in children if each.is_running()]

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()


def until(look: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if look():
                return
        except (KafkaError, ClientError, OSError):
            pass
        time.sleep(0.1)
    raise AssertionError(f"waited in vain: {what}")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLSTREAM, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def told_more_often(cluster: Started, text: str, before: int) -> bool:
    return cluster.said.count(text) > before


def create(bootstrap: str, name: str) -> bool:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return not admin.create_topics([NewTopic(name, 1, 2)]).errors


def joins(cluster: Started, directory: Path) -> None:
    """Start another broker with the command that was printed, see it, and stop it."""
    words = shlex.split(cluster.joining.replace("DATA", shlex.quote(str(directory))))
    assert words[0] == "millstream"
    broker = subprocess.Popen([*MILLSTREAM, *words[1:]], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: brokers_of(cluster.bootstrap) == [1, 2, 3], "a third broker")
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            broker_3 = Resource(ResourceType.BROKER, "3")
            (settings,) = admin.describe_configs({broker_3: ["min.insync.replicas"]}).values()
            assert [each.value for each in settings.get()] == ["2"]
        broker.terminate()
        assert broker.wait(TIMEOUT_S) == 0
        until(lambda: brokers_of(cluster.bootstrap) == [1, 2], "its end")
    finally:
        broker.kill()
        broker.communicate()


def comes_back(cluster: Started) -> None:
    """Start the broker that has ended with the command that was printed, see it, and stop it."""
    (command,) = re.findall(r"to start it again: (.*)", "".join(cluster.said))
    words = shlex.split(command)
    assert words[0] == "millstream"
    broker = subprocess.Popen([*MILLSTREAM, *words[1:]], stdout=subprocess.PIPE, text=True)
    try:
        until(lambda: brokers_of(cluster.bootstrap) == [1, 2], "the broker")
        broker.terminate()
        assert broker.wait(TIMEOUT_S) == 0
    finally:
        broker.kill()
        broker.communicate()


def brokers_of(bootstrap: str) -> list[int]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return sorted(each.broker_id for each in admin.describe_cluster().brokers)


@pytest.mark.parametrize(
    ("option", "process", "name"),
    [
        (None, str(Path("a place with spaces") / "keeper"), "the keeper"),
        pytest.param("--zookeeper", "ZooKeeperServerMain", "ZooKeeper", marks=pytest.mark.long),
    ],
    ids=["keeper", "zookeeper"],
)
def test_a_life_of_a_cluster(tmp_path: Path, option: str | None, process: str, name: str) -> None:
    directory = tmp_path / "a place with spaces"
    options = ["--brokers", "2", "--port", "0", *([option] if option else [])]
    with Started(directory, *options) as cluster:
        assert create(cluster.bootstrap, "t")
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            producer.send("t", b"kept").result(TIMEOUT_S)

        joins(cluster, tmp_path / "a third broker")
        second = run("cluster", "start", "--dir", str(directory), "--port", "0")
        assert second.returncode == 1
        assert "another process is using this directory" in second.stderr

        os.kill(cluster.child(process).pid, signal.SIGKILL)
        until(lambda: f"{name} had ended and was started again" in cluster.said, name)
        until(lambda: create(cluster.bootstrap, "afterwards"), "a controller that can write")

        os.kill(cluster.child("broker-2").pid, signal.SIGKILL)
        until(lambda: "broker 2 has exited" in cluster.said, "a word about the broker")
        first = cluster.bootstrap.split(",")[0]

        def noticed() -> bool:
            shown = run("cluster", "describe", "-b", first, "--json")
            return [each["id"] for each in json.loads(shown.stdout)["brokers"]] == [1]

        until(noticed, "the broker's end in the view of the other")
        assert "2\tdown\t" in run("cluster", "describe", "-b", first).stdout
        assert "Broker 2 is down" in run("cluster", "doctor", "-b", first).stdout
        comes_back(cluster)
        cluster.stop(signal.SIGTERM)
        store = cluster.store

    # The store that it has is used again, whether or not it is asked for.
    with Started(directory, "--brokers", "2", "--port", "0") as cluster:
        assert cluster.store == store, "whoever joined finds it again"
        with Consumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            values: list[bytes | None] = []

            def read() -> bool:
                values.extend(each.value for each in consumer.poll(1.0))
                return bool(values)

            until(read, "the record")
        assert values == [b"kept"]
        cluster.stop(signal.SIGINT)


def test_a_broker_that_ends_is_started_again_if_asked_for(tmp_path: Path) -> None:
    options = ["--brokers", "2", "--port", "0", "--restart"]
    with Started(tmp_path / "cluster", *options) as cluster:
        until(lambda: brokers_of(cluster.bootstrap) == [1, 2], "two brokers")
        again = "broker 2 had ended and was started again"
        for _ in range(3):
            told = cluster.said.count(again)
            os.kill(cluster.child("broker-2").pid, signal.SIGKILL)
            until(partial(told_more_often, cluster, again, told), "its start")
            until(lambda: brokers_of(cluster.bootstrap) == [1, 2], "the same broker")
        os.kill(cluster.child("broker-2").pid, signal.SIGKILL)
        until(lambda: "broker 2 has exited" in cluster.said, "that it is left alone")
        until(lambda: brokers_of(cluster.bootstrap.split(",")[0]) == [1], "its end")
        cluster.stop(signal.SIGTERM)


def test_a_cluster_with_a_keeper_gets_no_other_store(tmp_path: Path) -> None:
    (tmp_path / "keeper").mkdir()
    refused = run("cluster", "start", "--dir", str(tmp_path), "--port", "0", "--zookeeper")
    assert refused.returncode == 1
    assert "millstream cluster migrate-metadata moves it to ZooKeeper" in refused.stderr


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = run("cluster", "start", "--dir", str(tmp_path / "x"), "--port", port)
    assert refused.returncode == 1
    assert "Address already in use" in refused.stderr
    children = [
        each for each in psutil.process_iter(["cmdline"]) if str(tmp_path) in str(each.info)
    ]
    assert not children


def test_an_ensemble_goes_on_without_one_of_its_servers_and_ends_without_two(
    tmp_path: Path,
) -> None:
    errors = (tmp_path / "err").open("w+")
    process = subprocess.Popen(
        [*MILLSTREAM, "zookeeper", "start", "--ensemble", "3", "--dir", str(tmp_path / "zk")],
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "zookeeper listening on" in process.stdout.readline()
        first, second, _ = psutil.Process(process.pid).children()
        first.kill()
        until(lambda: "the others keep running" in (tmp_path / "err").read_text(), "a word")
        assert process.poll() is None
        second.kill()
        assert process.wait(TIMEOUT_S) == 1
        assert "too few servers are left" in (tmp_path / "err").read_text()
    finally:
        process.terminate()
        process.communicate()
        errors.close()
