"""A start that fails leaves the directories as they were: who must recover next time still must.

Else one mistyped port after a crash would pass the crash for a clean shutdown.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic, offset_for, produce, read_all

from millstream.records.builder import BatchBuilder
from millstream.sqlite.database import FILE_NAME

pytestmark = [pytest.mark.system, pytest.mark.own_interpreter]

MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A running broker with ten records in one topic."""
    process = BrokerProcess(tmp_path)
    process.start()
    with Wire(process.host, process.port) as wire:
        create_topic(wire, "t", 1)
        for number in range(10):
            builder = BatchBuilder()
            builder.append(number, None, b"%d" % number)
            assert produce(wire, "t", 0, builder.build()).base_offset == number
    yield process
    process.kill()


def files_of(broker: BrokerProcess) -> dict[str, bytes]:
    """Return the small files of the data directory; the metadata has a life of its own."""
    return {
        path.name: path.read_bytes()
        for path in broker.data_directory.iterdir()
        if path.is_file() and not path.name.startswith("millstream")
    }


def start_in_vain(broker: BrokerProcess, *arguments: str) -> str:
    """Start a broker over the same directory; return what it says."""
    done = subprocess.run(
        [*broker.command(), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_directory_in_use_is_left_alone(broker: BrokerProcess) -> None:
    before = files_of(broker)
    assert "another process is using this directory" in start_in_vain(broker, "--port", "0")
    assert files_of(broker) == before
    with Wire(broker.host, broker.port) as wire:
        assert len(read_all(wire, "t", 0)) == 10


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_port_that_is_taken_changes_nothing(broker: BrokerProcess, ending: str) -> None:
    broker.stop() if ending == "stop" else broker.kill()
    before = files_of(broker)
    assert (MARKER in before) == (ending == "stop")
    with socket.create_server((broker.host, 0)) as taken:
        said = start_in_vain(broker, "--port", str(taken.getsockname()[1]))
    assert "Address already in use" in said
    assert files_of(broker) == before


def test_a_damaged_metadata_store_is_named_in_one_sentence(broker: BrokerProcess) -> None:
    broker.stop()
    (broker.data_directory / FILE_NAME).write_bytes(b"something else" * 300)
    said = start_in_vain(broker, "--port", "0")
    (line,) = [each for each in said.splitlines() if "INFO" not in each]
    assert f"{FILE_NAME} is damaged (file is not a database): restore it" in line


def test_what_a_crash_tore_is_still_mended_after_a_start_in_vain(broker: BrokerProcess) -> None:
    broker.kill()
    log = broker.data_directory / "t-0" / f"{0:020d}.log"
    sound = log.read_bytes()
    log.write_bytes(sound + sound[:40])
    (broker.data_directory / "meta.properties").rename(broker.directory / "meta.properties")
    (broker.data_directory / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=x\n")
    assert "belongs to node 7" in start_in_vain(broker)
    (broker.directory / "meta.properties").rename(broker.data_directory / "meta.properties")
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        assert offset_for(wire, "t", 0, -1).offset == 10
        assert len(read_all(wire, "t", 0)) == 10
    assert log.read_bytes() == sound
    broker.stop()
