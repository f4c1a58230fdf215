"""`millstream serve` as a process: where it listens, how it stops, what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerFailedError, BrokerProcess

from millstream.client import Admin, Producer
from millstream.client.core.admin.offsets import LATEST
from millstream.client.core.admin.topics import NewTopic
from millstream.model.topic import TopicPartition

pytestmark = [pytest.mark.system, pytest.mark.own_interpreter]


def test_the_first_line_says_where(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "a directory with spaces") as broker:
        assert broker.first_line == (
            f"millstream listening on 127.0.0.1:{broker.port}, data in {broker.data_directory}"
        )
        assert broker.port > 0
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            (node,) = admin.describe_cluster().brokers
            assert node.address.port == broker.port


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, ending: signal.Signals) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    broker.process.send_signal(ending)
    assert broker.process.wait(30) == 0
    broker.kill()
    assert (broker.data_directory / ".kafka_cleanshutdown").exists()


def test_a_crash_names_what_ran(tmp_path: Path) -> None:
    """A rule for the brokers of tests: without it a crash that comes once is a number."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    broker.process.send_signal(signal.SIGSEGV)
    broker.process.wait(30)
    with pytest.raises(BrokerFailedError, match=f"exit code -{signal.SIGSEGV.value}") as failed:
        broker.stop()
    assert "Fatal Python error: Segmentation fault" in str(failed.value)
    assert "lifecycle.py" in str(failed.value)


def test_what_was_written_is_there_after_a_restart_and_after_kill(tmp_path: Path) -> None:
    place = TopicPartition("t", 0)
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            topic_id = admin.create_topics([NewTopic("t", 1)])["t"].get().topic_id
        for written, end in enumerate([broker.stop, broker.kill, broker.stop], start=1):
            with (
                Admin(bootstrap_servers=broker.bootstrap) as admin,
                Producer(bootstrap_servers=broker.bootstrap) as producer,
            ):
                assert admin.describe_topics(["t"])["t"].get().topic_id == topic_id
                producer.send_values([b"a", b"b"], "t").result(30)
                latest = admin.list_offsets({place: LATEST})[place].get()
                assert latest is not None
                assert latest.offset == 2 * written
            end()
            broker.start()
    finally:
        broker.stop()


def test_a_properties_file_an_override_and_the_environment(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=7\nnum.partitions=3\nlog.retention.hours=5\n")
    broker = BrokerProcess(
        tmp_path / "broker",
        {"num.partitions": "2"},
        arguments=[str(properties)],
        environment={"MILLSTREAM_AUTO_CREATE_TOPICS_ENABLE": "true"},
    )
    with (
        broker,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
        Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        assert [each.broker_id for each in admin.describe_cluster().brokers] == [7]
        assert len(producer.partitions_for("made-by-asking")) == 2


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "millstream.cli.main", "serve", "--port", port],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == (
        f"millstream: serve: cannot listen on PLAINTEXT://127.0.0.1:{port}: "
        "Address already in use; choose another --port\n"
    )


def test_two_brokers_do_not_share_a_directory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        done = subprocess.run(
            [*broker.command()[:-1], "0"], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
