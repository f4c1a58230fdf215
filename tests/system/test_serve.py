"""`millstream serve` as a process: where it listens, how it stops, what it refuses."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess

from millstream.client.cluster import Cluster
from millstream.client.lines import LineEncoder
from millstream.client.offsets import LATEST, end_offsets
from millstream.client.produce import BatchSender
from millstream.client.topics import NewTopic, create_topics
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchOptions

pytestmark = pytest.mark.system


def test_the_first_line_says_where(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "a directory with spaces") as broker:
        assert broker.first_line == (
            f"millstream listening on 127.0.0.1:{broker.port}, data in {broker.data_directory}"
        )
        assert broker.port > 0
        with Cluster.at(broker.bootstrap) as cluster:
            (node,) = cluster.metadata([]).brokers.values()
            assert node.address.port == broker.port


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, ending: signal.Signals) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    broker.process.send_signal(ending)
    assert broker.process.wait(30) == 0
    broker.kill()
    assert (broker.data_directory / ".kafka_cleanshutdown").exists()


def test_what_was_written_is_there_after_a_restart_and_after_kill(tmp_path: Path) -> None:
    place = TopicPartition("t", 0)
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        with Cluster.at(broker.bootstrap) as cluster:
            assert create_topics(cluster, [NewTopic("t", 1)]) == {"t": None}
            topic_id = cluster.topic("t").topic_id
        for written, end in enumerate([broker.stop, broker.kill, broker.stop], start=1):
            with Cluster.at(broker.bootstrap) as cluster:
                assert cluster.topic("t").topic_id == topic_id
                sender = BatchSender(cluster)
                producer_id, epoch, sequence = sender.identity(place, 2)
                options = BatchOptions(
                    producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
                )
                sender.send(place, LineEncoder().encode([b"a", b"b"], 0, options), 2)
                sender.flush()
                sender.close()
                assert end_offsets(cluster, [place], which=LATEST) == {place: 2 * written}
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
    with broker, Cluster.at(broker.bootstrap) as cluster:
        assert list(cluster.metadata([]).brokers) == [7]
        assert len(cluster.topic("made-by-asking", create_missing=True).partitions) == 2


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
        "Address already in use\n"
    )


def test_two_brokers_do_not_share_a_directory(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        done = subprocess.run(
            [*broker.command()[:-1], "0"], capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
